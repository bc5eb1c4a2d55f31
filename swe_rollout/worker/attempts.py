"""Queue attempts, and follow a failed attempt, or a failed sample, with another."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import chain, count, islice
from typing import Protocol

import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
)

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import InternalError
from swe_rollout.events import AttemptRetried, SampleReplaced, Subscriber
from swe_rollout.store.refills import Refills
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory

log = structlog.get_logger()


async def play_attempts(
    first: Attempt, play: Callable[[Attempt], Awaitable[Trajectory]], context: JobContext
) -> Trajectory:
    """Return the first attempt that did not fail, or the last that the job's retries allow."""
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


def replaced(committed: Trajectory, refills: Refills, publish: Subscriber) -> EpisodeId | None:
    """Return the sample to play in place of a committed one that failed; publish that."""
    by = refills.decide(committed.episode, committed.failure)
    if by is not None:
        log.info("sample_replaced", episode=str(committed.episode), by=str(by))
        publish(SampleReplaced(committed.episode, by))
    return by


def _is_retryable(trajectory: Trajectory) -> bool:
    return trajectory.failure is not None and trajectory.failure.retryable


def _last_result(state: RetryCallState) -> Trajectory:
    if state.outcome is None:
        raise InternalError("an attempt ended without an outcome")
    result: Trajectory = state.outcome.result()
    return result


class Attempts(Protocol):
    """A number of attempts."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Attempt]: ...


class AttemptQueue:
    """Attempts in the order in which they were added; one put back comes first, one put off last.

    Attempts are enumerated lazily, because a job may have millions.
    """

    def __init__(self) -> None:
        self._front: deque[Attempt] = deque()
        self._rest: Iterator[Attempt] = iter(())
        self._last: deque[Attempt] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, attempts: Attempts) -> None:
        """Append attempts."""
        self._rest = chain(self._rest, attempts)
        self._size += len(attempts)

    def pop(self) -> Attempt:
        """Remove and return the first attempt."""
        attempt = self._front.popleft() if self._front else next(self._rest, None)
        self._size -= 1
        return attempt or self._last.popleft()

    def put_back(self, attempt: Attempt) -> None:
        """Put an attempt before all others."""
        self._front.appendleft(attempt)
        self._size += 1

    def put_off(self, attempt: Attempt) -> None:
        """Put an attempt after all others."""
        self._last.append(attempt)
        self._size += 1

    def peek(self, count: int) -> tuple[Attempt, ...]:
        """Return up to `count` attempts from the front without removing them."""
        self._front.extend(islice(self._rest, max(0, count - len(self._front))))
        return tuple(islice(chain(self._front, self._last), count))
