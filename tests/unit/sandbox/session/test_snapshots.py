"""Which moment a session asks for, and when requests wait for it."""

from __future__ import annotations

import asyncio
import errno
import struct
from typing import cast

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session.client import SupervisorClient
from swe_rollout.sandbox.session.frames import Request, RequestKind
from swe_rollout.sandbox.session.walk import SessionSnapshots

_TRACK, _CHANGES, _RESTORE = RequestKind.TRACK, RequestKind.CHANGES, RequestKind.RESTORE
_DONE = ExecResult(0, b"E", struct.pack("<QQQQQ", 1, 0, 1, 0, 0), stdout_bytes=1)


class _Client:
    """A supervisor's client that remembers what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[RequestKind, int]] = []
        self.results: list[ExecResult] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def request_within(self, request: Request, *, timeout_s: float) -> ExecResult:
        assert timeout_s > 0
        self.asked.append((request.kind, *struct.unpack_from("<Q", request.body)))
        await self.may_answer.wait()
        return self.results.pop(0) if self.results else _DONE


@pytest.fixture
def client() -> _Client:
    return _Client()


@pytest.fixture
def snapshots(client: _Client) -> SessionSnapshots:
    return SessionSnapshots(cast("SupervisorClient", client), None)


async def test_hand_out_is_recorded_once_and_what_changes_files_waits(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    client.may_answer.clear()
    snapshots.track()
    snapshots.track()
    waiting = asyncio.create_task(snapshots.ready())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    client.may_answer.set()
    await waiting
    assert client.asked == [(_TRACK, 0)]


async def test_each_delta_follows_the_last_one(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    snapshots.track()
    assert [(await snapshots.changes()).number for _ in range(2)] == [1, 2]
    assert (await snapshots.changes(since=1)).number == 2
    assert client.asked == [(_TRACK, 0), (_CHANGES, 1), (_CHANGES, 2), (_CHANGES, 2)]


async def test_after_a_delta_is_applied_its_moment_is_recorded_before_the_next_command(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    other = SessionSnapshots(cast("SupervisorClient", _Client()), None)
    other.track()
    for delta in [await other.changes() for _ in range(3)]:
        await snapshots.apply(delta)
    assert client.asked == [(_RESTORE, 0)] * 3
    await snapshots.ready()
    await snapshots.ready()
    assert (await snapshots.changes()).number == 4
    assert client.asked[3:] == [(_TRACK, 3), (_CHANGES, 4)]


async def test_a_delta_that_is_applied_first_takes_the_place_of_the_hand_out(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    """One walk less before the first command of a sandbox that is rebuilt."""
    other = SessionSnapshots(cast("SupervisorClient", _Client()), None)
    other.track()
    snapshots.track()
    await snapshots.apply(await other.changes())
    await snapshots.ready()
    assert client.asked == [(_RESTORE, 0), (_TRACK, 1)]


async def test_what_is_recorded_while_nobody_waits_is_not_recorded_again(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    await snapshots.record()
    assert client.asked == [(_TRACK, 0)]
    snapshots.track()
    await snapshots.record()
    await snapshots.ready()
    assert client.asked == [(_TRACK, 0)]


async def test_a_killed_walk_is_repeated_and_then_said_to_have_failed(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    snapshots.track()
    await snapshots.ready()
    killed = ExecResult(137, b"", b"")
    client.results = [killed]
    assert (await snapshots.changes()).number == 1
    client.results = [killed] * 3
    refused = await snapshots.changes()
    assert (refused.number, bool(refused)) == (1, False)
    assert refused.unsaved
    assert (await snapshots.changes()).number == 2


async def test_a_hand_out_that_could_not_be_recorded_is_said(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    client.results = [ExecResult(errno.EFBIG, b"", b"it has too many files")]
    snapshots.track()
    assert (await snapshots.changes()).unsaved == ("/: it has too many files",)


async def test_a_moment_that_is_not_kept_is_an_error(
    client: _Client, snapshots: SessionSnapshots
) -> None:
    client.results = [ExecResult(errno.ESTALE, b"", b"")]
    with pytest.raises(SandboxError) as caught:
        await snapshots.changes(since=3)
    assert "number 3" in caught.value.what


async def test_without_a_recorded_hand_out_there_is_nothing_to_compare_with(
    snapshots: SessionSnapshots,
) -> None:
    with pytest.raises(SandboxError):
        await snapshots.changes()
