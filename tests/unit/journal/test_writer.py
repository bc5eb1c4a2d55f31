"""The writer: behind the turn, before the next one's calls, one chunk at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError, UnreachableError
from swe_rollout.journal import writer as writer_module
from swe_rollout.journal.entries import End, FileRead, decode
from swe_rollout.journal.tape import Tape
from swe_rollout.journal.writer import JournalWriter, TakenOverError
from swe_rollout.sandbox.base import SandboxDelta
from swe_rollout.store.journals import JournalRef
from swe_rollout.types.deadline import Deadline
from unit.journal.journal_parts import EPISODE, Disk, MortalJournals
from waits import PATIENCE_S, stands, until

REF = JournalRef(EPISODE, 1, 0)


class Slow(MortalJournals):
    """Journals whose writes wait for a test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate = asyncio.Event()
        self.asked = 0

    async def create(self, ref: JournalRef, number: int, data: bytes) -> bool:
        self.asked += 1
        await self.gate.wait()
        return await super().create(ref, number, data)


class Scene:
    """A writer with its tape, and a way to note answers."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.tape = Tape()
        self.journals = Slow(folder)
        self.disk = disk or Disk()
        self.writer = JournalWriter(self.journals, REF, self.tape, self.disk, writer="me")
        self.tape.clock = Deadline(100)

    async def answered(self, name: str) -> None:
        """Let the world answer something."""

        async def world() -> bytes:
            return name.encode()

        await self.tape.call(f"exec:{name}", world, FileRead)

    async def stored(self) -> list[list[str]]:
        """The requests of each chunk that is there."""
        ref = await self.journals.last(EPISODE)
        chunks = [] if ref is None else await self.journals.read(ref)
        return [[entry.request for entry in decode(data).entries] for data in chunks]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def blocks(work: asyncio.Task[None]) -> bool:
    """Whether it waits."""
    done, _ = await asyncio.wait({work}, timeout=0.03)
    return not done


async def test_a_turn_begins_at_once_and_its_calls_wait_for_the_turn_before(scene: Scene) -> None:
    await scene.answered("a")
    await asyncio.wait_for(scene.writer.before_turn(), PATIENCE_S)
    calling = asyncio.create_task(scene.writer.before_call())
    assert await blocks(calling)
    assert await scene.stored() == []
    scene.journals.gate.set()
    await calling
    assert await scene.stored() == [["exec:a"]]
    assert scene.writer.written == 1


async def test_no_turn_begins_before_the_one_before_the_last_is_durable(scene: Scene) -> None:
    await scene.answered("a")
    await scene.writer.before_turn()
    await scene.answered("b")
    second = asyncio.create_task(scene.writer.before_turn())
    assert await blocks(second)
    assert scene.journals.asked == 1
    scene.journals.gate.set()
    await second
    await scene.writer.aclose()
    assert await scene.stored() == [["exec:a"], ["exec:b"]]


async def test_a_turn_without_answers_writes_nothing(scene: Scene) -> None:
    await scene.writer.before_turn()
    await scene.writer.before_call()
    assert not scene.writer.is_begun


async def test_nothing_is_written_while_a_command_runs(scene: Scene) -> None:
    going = asyncio.Event()

    async def world() -> bytes:
        await going.wait()
        return b""

    running = asyncio.create_task(scene.tape.call("exec:long", world, FileRead))
    await asyncio.sleep(0)
    await scene.answered("a")
    await scene.writer.before_turn()
    assert not scene.writer.is_begun
    going.set()
    await running
    scene.journals.gate.set()
    await scene.writer.before_turn()
    await scene.writer.before_call()
    assert await scene.stored() == [["exec:a", "exec:long"]]


async def test_the_clock_stands_still_during_the_wait(scene: Scene) -> None:
    await scene.answered("a")
    await scene.writer.before_turn()
    calling = asyncio.create_task(scene.writer.before_call())
    clock = scene.tape.clock
    assert clock is not None
    await until(lambda: stands(clock))
    before = clock.remaining_s
    assert await blocks(calling)
    assert clock.remaining_s == before
    scene.journals.gate.set()
    await calling


async def test_the_time_to_find_changes_is_the_episodes_own(tmp_path: Path) -> None:
    """A policy that makes a million files pays for the walk over them."""

    class Full(Disk):
        async def changes(self, *, since: int | None = None) -> SandboxDelta:
            await asyncio.sleep(0.1)
            return await super().changes(since=since)

    scene = Scene(tmp_path, Full())
    scene.journals.gate.set()
    await scene.answered("a")
    await scene.writer.before_turn()
    assert scene.tape.clock is not None
    before = scene.tape.clock.remaining_s
    await scene.writer.before_call()
    assert scene.tape.clock.remaining_s <= before - 0.09


async def test_the_end_is_written_behind_what_follows(scene: Scene) -> None:
    await scene.answered("a")
    await asyncio.wait_for(scene.writer.end(End("diff", "")), PATIENCE_S)
    scene.journals.gate.set()
    await scene.writer.aclose()
    (data,) = await scene.journals.read(JournalRef(EPISODE, 1, 1))
    chunk = decode(data)
    assert (chunk.end, chunk.delta) == (End("diff", ""), None)


async def test_a_lost_sandbox_ends_the_journal_and_not_the_episode(tmp_path: Path) -> None:
    class Lost(Disk):
        async def changes(self, *, since: int | None = None) -> SandboxDelta:
            del since
            raise SandboxError("the sandbox is lost")

    scene = Scene(tmp_path, Lost())
    scene.journals.gate.set()
    await scene.answered("a")
    await scene.writer.before_turn()
    await scene.writer.before_call()
    await scene.answered("b")
    await scene.writer.before_turn()
    assert await scene.stored() == []
    assert scene.tape.take_noted() == ()


async def test_another_ones_chunk_stops_every_step_that_follows(scene: Scene) -> None:
    scene.journals.gate.set()
    assert await scene.journals.create(REF, 0, b"another's")
    await scene.answered("a")
    await scene.writer.before_turn()
    with pytest.raises(TakenOverError, match="taken over"):
        await scene.writer.before_call()
    with pytest.raises(TakenOverError):
        await scene.writer.before_turn()
    await scene.writer.aclose()


async def test_patience_with_the_store_has_an_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PATIENCE_S", 0.05)

    async def refuse(*_: object) -> bool:
        raise UnreachableError("the store is down")

    scene.journals.create = refuse  # type: ignore[method-assign,assignment]
    await scene.answered("a")
    await scene.writer.before_turn()
    await scene.writer.before_call()
    assert scene.writer.written == 0


async def test_closing_waits_for_the_write_and_a_cancelled_one_ends_it(scene: Scene) -> None:
    await scene.answered("a")
    await scene.writer.before_turn()
    closing = asyncio.create_task(scene.writer.aclose())
    assert await blocks(closing)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    scene.journals.gate.set()
    await asyncio.sleep(0.01)
    assert await scene.stored() == []
