"""Retries that cost nothing until a call has failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying

_T = TypeVar("_T")


async def retried(call: Callable[[], Awaitable[_T]], retrying: Callable[[], AsyncRetrying]) -> _T:
    """Return the result of `call`, which is repeated as `retrying` says.

    Retries are set up only for a call that failed: that takes as long as a small write.
    """
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - `retrying` decides about it
        first = [error]

    async def again() -> _T:
        if first:
            raise first.pop()
        return await call()

    found: _T = await retrying()(again)
    return found
