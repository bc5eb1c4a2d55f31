"""Open something once per process and event loop, for trainers that call a function per sample.

A trainer has no place to open a job's session and close it again. It is opened by the first call,
by a task of its own that ends with the event loop or with the process.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Collection, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

log = structlog.get_logger()
_T = TypeVar("_T")
_EXIT_S: Final = 30.0
"""How long the end of the process waits for sandboxes to be deleted."""


@dataclass(frozen=True, slots=True)
class _Held:
    value: asyncio.Future[Any]  # of the type that its opener yields
    keeper: asyncio.Task[None]


_HELD: dict[asyncio.AbstractEventLoop, dict[Hashable, _Held]] = {}


async def held(key: Hashable, opening: Callable[[], AbstractAsyncContextManager[_T]]) -> _T:
    """Return what `opening` yields, opened by the first call with this key in this event loop.

    Where it can't be opened, all that wait raise its error, and the next call tries again.
    """
    loop = asyncio.get_running_loop()
    if not _HELD:
        atexit.register(_close_all)
    of_loop = _HELD.setdefault(loop, {})
    if (found := of_loop.get(key)) is None:
        value: asyncio.Future[_T] = loop.create_future()
        keeper = loop.create_task(_keep(key, opening, value), name=f"held: {key}")
        found = of_loop[key] = _Held(value, keeper)
    # A caller that is cancelled ends neither the others nor the opening.
    result: _T = await asyncio.shield(found.value)
    return result


async def let_go(keys: Collection[Hashable] | None = None) -> None:
    """Close what this event loop holds under these keys; None: everything."""
    of_loop = _HELD.get(asyncio.get_running_loop(), {})
    keepers = [each.keeper for key, each in of_loop.items() if keys is None or key in keys]
    for keeper in keepers:
        keeper.cancel()
    await asyncio.gather(*keepers, return_exceptions=True)


async def _keep(
    key: Hashable,
    opening: Callable[[], AbstractAsyncContextManager[_T]],
    value: asyncio.Future[_T],
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with opening() as opened:
            value.set_result(opened)
            await loop.create_future()
    except Exception as error:
        if value.done():
            log.exception("not_closed", key=str(key))
        else:
            value.set_exception(error)
            # Its callers may have been cancelled: then nobody reads it.
            value.exception()
    finally:
        value.cancel()
        of_loop = _HELD.get(loop, {})
        of_loop.pop(key, None)
        if not of_loop:
            _HELD.pop(loop, None)


def _close_all() -> None:
    """Close what is open in loops of threads that outlive the main one, at the process's end."""
    for loop in tuple(_HELD):
        if loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(let_go(), loop).result(_EXIT_S)
            except Exception as error:  # noqa: BLE001 - the process ends whatever happens
                log.warning("not_closed_at_exit", why=repr(error))
