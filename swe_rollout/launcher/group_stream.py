"""The groups of a job for a trainer's loop: asynchronous, or synchronous in any script.

async with job.stream(trainer="t1") as groups:      with job.stream(trainer="t1") as groups:
    async for group in groups:                          for group in groups:
        await groups.ack(group)                             groups.ack(group)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from swe_rollout.errors import UsageError

if TYPE_CHECKING:
    from swe_rollout.training.group_source import GroupCounts, GroupSource
    from swe_rollout.training.groups import Group
    from swe_rollout.worker.live_groups import LiveGroups

T = TypeVar("T")


class Call(Protocol):
    """Returns the result of a coroutine to synchronous code."""

    def __call__(self, work: Coroutine[object, object, T], /) -> T: ...


class Groups:
    """The groups of a job, each handed to one process of a trainer. Iterate with `for`.

    A group is claimed before it is handed out. Acknowledge it with `ack` once its update can't be
    lost any more; until then it is unfinished, and only a later epoch of the trainer gets it again.
    """

    def __init__(self, source: GroupSource, call: Call) -> None:
        self._source = source
        self._call = call

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Group:
        found = self._call(self._source.next())
        if found is None:
            raise StopIteration
        return found

    @property
    def counts(self) -> GroupCounts:
        """What became of the groups so far."""
        return self._source.counts

    def announce(self, version: str | int) -> None:
        """Announce the weight version that the engines have from now on."""
        self._source.announce(version)

    def ack(self, group: Group | str) -> None:
        """Mark a group as trained, for good. Raises ClaimLostError if a later epoch has it now."""
        self._call(self._source.ack(group))

    def release(self, group: Group | str) -> None:
        """Give a group back untrained: whoever asks next may get it, this process too."""
        self._call(self._source.release(group))


class GroupStream:
    """A job whose groups are played while the block runs: `async with`, or `with`."""

    def __init__(self, open_groups: Callable[[], AbstractAsyncContextManager[LiveGroups]]) -> None:
        self._open_groups = open_groups
        self._async = AsyncExitStack()
        self._sync = ExitStack()

    async def __aenter__(self) -> LiveGroups:
        return await self._async.enter_async_context(self._open_groups())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._async.__aexit__(kind, error, trace)

    def __enter__(self) -> Groups:
        thread = _LoopThread(self._open_groups)
        groups = thread.open()
        self._sync.callback(thread.close)
        return groups

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sync.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Group]:
        raise UsageError(
            "a stream is opened before it is iterated over",
            why="its episodes end with the block that opened it, and not when a loop is left",
            fix="with job.stream(…) as groups: for group in groups: …",
        )


class _LoopThread:
    """Runs an asynchronous context on a thread, whose episodes go on between two calls."""

    def __init__(self, open_groups: Callable[[], AbstractAsyncContextManager[LiveGroups]]) -> None:
        self._open_groups = open_groups
        self._opened: Future[LiveGroups] = Future()
        self._closed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="swe-rollout-groups", daemon=True)
        self._error: BaseException | None = None

    def open(self) -> Groups:
        self._thread.start()
        try:
            return Groups(self._opened.result(), self._call)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the context, and wait for its cleanup."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()
        self._loop.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    async def _main(self) -> None:
        try:
            async with self._open_groups() as groups:
                self._opened.set_result(groups)
                await self._closed.wait()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            if self._opened.done():
                self._error = error
            else:
                self._opened.set_exception(error)

    def _call(self, work: Coroutine[object, object, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise UsageError("the stream is closed", fix="iterate over it inside its block")
        result = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return result.result()
        except KeyboardInterrupt:
            result.cancel()
            raise
