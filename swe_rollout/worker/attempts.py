"""Try an episode again after a failure that is not the policy's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
)

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import InternalError
from swe_rollout.events import AttemptRetried
from swe_rollout.types.trajectory import Trajectory


async def play_attempts(
    first: Attempt, play: Callable[[Attempt], Awaitable[Trajectory]], context: JobContext
) -> Trajectory:
    """Return the first attempt that nothing broke, or the last one that the job's retries allow."""
    numbers = count(first.number)

    async def attempt() -> Trajectory:
        return await play(replace(first, number=next(numbers)))

    def report(state: RetryCallState) -> None:
        if (failure := _last_result(state).failure) is not None:
            number = first.number + state.attempt_number - 1
            context.publish(AttemptRetried(first.episode, failure, number))

    retrying = AsyncRetrying(
        retry=retry_if_result(_is_retryable),
        stop=stop_after_attempt(context.retry.attempts - first.number + 1),
        wait=wait_exponential(multiplier=context.retry.backoff_seconds),
        before_sleep=report,
        retry_error_callback=_last_result,
    )
    return await retrying(attempt)


def _is_retryable(trajectory: Trajectory) -> bool:
    return trajectory.failure is not None and trajectory.failure.retryable


def _last_result(state: RetryCallState) -> Trajectory:
    if state.outcome is None:
        raise InternalError("an attempt ended without an outcome")
    result: Trajectory = state.outcome.result()
    return result
