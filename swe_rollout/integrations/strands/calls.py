"""A call of the engine as Strands knows it: with its own errors, and ended by a signal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final, TypeVar

from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException

from swe_rollout.errors import EngineError, UnreachableError
from swe_rollout.integrations.strands.exceptions import (
    SGLangClientError,
    SGLangContextLengthError,
    SGLangThrottledError,
    client_error,
)

_T = TypeVar("_T")
_POLL_S: Final = 0.25
"""Between looks at a signal of another thread."""


class StrandsErrors:
    """Turns an engine's errors into those that Strands and its users know."""

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        match error:
            case EngineError() | UnreachableError():
                found = client_error(error)
                found.__cause__ = error
            case SGLangClientError():
                found = error
            case _:
                return
        match found:
            case SGLangContextLengthError():
                raise ContextWindowOverflowException(str(found)) from found
            case SGLangThrottledError():
                raise ModelThrottledException(str(found)) from found
            case _ if found is not error:
                raise found


async def unless(signal: threading.Event | None, call: Coroutine[object, object, _T]) -> _T | None:
    """Return the result of a call, or None once the signal is set: then the call is ended."""
    if signal is None:
        return await call
    task = asyncio.ensure_future(call)
    try:
        while not task.done():
            await asyncio.wait((task,), timeout=_POLL_S)
            if signal.is_set() and not task.done():
                return None
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
