"""The groups of a job for a trainer's loop, asynchronous or synchronous.

async with job.stream(trainer="t1") as groups:      with job.stream(trainer="t1") as groups:
    async for group in groups:                          for group in groups:
        await groups.ack(group)                             groups.ack(group)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from swe_rollout.errors import UsageError
from swe_rollout.launcher.sync import LoopThread

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

    A group is claimed before it is handed out. Acknowledge it with `ack` once its update can no
    longer be lost; until then it is unfinished, and only a later epoch of the trainer gets it
    again.
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
        """Return the counts of groups by their state so far."""
        return self._source.counts

    def announce(self, version: str | int) -> None:
        """Announce the weight version that the engines use from now on."""
        self._source.announce(version)

    def ack(self, group: Group | str) -> None:
        """Mark a group as trained for good. Raises ClaimLostError if a later epoch has it now."""
        self._call(self._source.ack(group))

    def release(self, group: Group | str) -> None:
        """Release a group untrained, so that any process, including this one, may get it."""
        self._call(self._source.release(group))


class GroupStream:
    """Plays a job's groups while an `async with` or `with` block runs."""

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
        thread = LoopThread(self._open_groups(), name="swe-rollout-groups", what="the stream")
        self._sync.callback(thread.close)
        return Groups(thread.value, thread.run)

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
