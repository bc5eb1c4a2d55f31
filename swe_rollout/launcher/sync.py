"""The bridge from synchronous code to asynchronous code: the only one in this package.

`run_sync` runs one coroutine, in scripts and in notebooks with a running event loop. A `LoopThread`
keeps a context open on its own event loop, for calls from any thread. `held` opens a context once
per process and event loop, for trainers that call a function for each sample and have no place to
open and close a job's session. Used by the launcher and by the adapters to trainers.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Collection, Coroutine, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Generic, Self, TypeVar

import structlog

from swe_rollout.errors import UsageError

log = structlog.get_logger()
T = TypeVar("T")
R = TypeVar("R")
POLL_S: Final = 0.25
"""The interval at which a flag set by another thread is polled."""
_EXIT_S: Final = 30.0
"""How long the process waits at its end for sandboxes to be deleted."""


def run_sync(work: Coroutine[object, object, T]) -> T:
    """Return the result of `work`. ^C cancels it and waits for its cleanup."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # Code inside a notebook's loop can't wait for that loop.
    with LoopThread(nullcontext(), name="swe-rollout") as thread:
        return thread.run(work)


async def ends_first(
    task: asyncio.Future[Any], flag: Callable[[], bool], *, poll_s: float = POLL_S
) -> bool:
    """Wait until a task ends or another thread sets a flag; return whether it ended."""
    while not task.done():
        await asyncio.wait((task,), timeout=poll_s)
        if not task.done() and flag():
            return False
    return True


class LoopThread(Generic[T]):
    """Keeps an asynchronous context open on the event loop of a daemon thread.

    Submitted coroutines run on that loop, whichever thread submits them.
    """

    value: T
    """The value that the context yielded."""

    def __init__(
        self, context: AbstractAsyncContextManager[T], *, name: str, what: str = "the event loop"
    ) -> None:
        """Enter the context in a new thread, or raise; `what` names it in errors after `close`."""
        self._what = what
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._works: set[asyncio.Future[Any]] = set()  # of whatever type
        self._error: BaseException | None = None
        opened: Future[T] = Future()
        self._thread = Thread(target=self._run, args=(context, opened), name=name, daemon=True)
        self._thread.start()
        with ExitStack() as failed:
            failed.callback(self.close)
            self.value = opened.result()
            failed.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Coroutine[object, object, R]) -> Future[R]:
        """Start `work` on the loop. Raises UsageError after `close`."""
        if self._loop.is_closed():
            work.close()
            raise UsageError(f"{self._what} is closed", fix="use it inside its block")
        return asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)

    def run(self, work: Coroutine[object, object, R]) -> R:
        """Return the result of `work`; an interrupt such as ^C cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel all running work, exit the context, and wait for its cleanup.

        Raises the errors of exiting the context.
        """
        with suppress(RuntimeError):  # The loop is already closed by an earlier call.
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, context: AbstractAsyncContextManager[T], opened: Future[T]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(context, opened))

    async def _serve(self, context: AbstractAsyncContextManager[T], opened: Future[T]) -> None:
        try:
            async with context as value:
                opened.set_result(value)
                await self._closing.wait()
                for work in self._works:
                    work.cancel()
                await asyncio.gather(*self._works, return_exceptions=True)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            if opened.done():
                self._error = error
            else:
                opened.set_exception(error)

    async def _tracked(self, work: Coroutine[object, object, R]) -> R:
        task: asyncio.Future[R] = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await task


@dataclass(frozen=True, slots=True)
class _Held:
    value: asyncio.Future[Any]  # of the type that its opener yields
    keeper: asyncio.Task[None]


_HELD: dict[asyncio.AbstractEventLoop, dict[Hashable, _Held]] = {}


async def held(key: Hashable, opening: Callable[[], AbstractAsyncContextManager[T]]) -> T:
    """Return the value of `opening`, entered by the first call with this key in this event loop.

    A dedicated task keeps it open until the event loop or the process ends. If opening fails, all
    waiting callers raise its error, and the next call tries again.
    """
    loop = asyncio.get_running_loop()
    if not _HELD:
        atexit.register(_close_all)
    of_loop = _HELD.setdefault(loop, {})
    if (found := of_loop.get(key)) is None:
        value: asyncio.Future[T] = loop.create_future()
        keeper = loop.create_task(_keep(key, opening, value), name=f"held: {key}")
        found = of_loop[key] = _Held(value, keeper)
    # Cancelling one caller cancels neither the others nor the opening.
    result: T = await asyncio.shield(found.value)
    return result


async def let_go(keys: Collection[Hashable] | None = None) -> None:
    """Close the contexts that this event loop holds under these keys, by default all of them."""
    of_loop = _HELD.get(asyncio.get_running_loop(), {})
    keepers = [each.keeper for key, each in of_loop.items() if keys is None or key in keys]
    for keeper in keepers:
        keeper.cancel()
    await asyncio.gather(*keepers, return_exceptions=True)


async def _keep(
    key: Hashable,
    opening: Callable[[], AbstractAsyncContextManager[T]],
    value: asyncio.Future[T],
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
            # If its callers were cancelled, nobody reads the error.
            value.exception()
    finally:
        value.cancel()
        of_loop = _HELD.get(loop, {})
        of_loop.pop(key, None)
        if not of_loop:
            _HELD.pop(loop, None)


def _close_all() -> None:
    """Close, at exit, contexts open in the loops of threads that outlive the main one."""
    for loop in tuple(_HELD):
        if loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(let_go(), loop).result(_EXIT_S)
            except (TimeoutError, CancelledError, RuntimeError) as error:
                log.warning("not_closed_at_exit", why=repr(error))
