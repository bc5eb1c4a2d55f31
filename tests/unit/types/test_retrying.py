"""Retries are set up for calls that failed, and count the first one."""

from __future__ import annotations

import pytest
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from swe_rollout.types.retrying import retried


def three_times() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception_type(ConnectionError), stop=stop_after_attempt(3), reraise=True
    )


async def test_nothing_is_set_up_for_a_call_that_succeeds() -> None:
    async def call() -> int:
        return 5

    def never() -> AsyncRetrying:
        raise AssertionError

    assert await retried(call, never) == 5


@pytest.mark.parametrize(("error", "calls"), [(ConnectionError, 3), (ValueError, 1)])
async def test_the_first_call_counts(error: type[Exception], calls: int) -> None:
    made: list[Exception] = []

    async def call() -> int:
        made.append(error(len(made)))
        raise made[-1]

    with pytest.raises(error) as raised:
        await retried(call, three_times)

    assert raised.value is made[-1]
    assert len(made) == calls


async def test_a_later_call_may_succeed() -> None:
    made: list[int] = []

    async def call() -> int:
        made.append(len(made))
        if len(made) < 3:
            raise ConnectionError
        return made[-1]

    assert await retried(call, three_times) == 2
