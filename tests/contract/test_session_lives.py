"""A process goes on with the session of one that died, in the same sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.cut_channel import CutStreamOpener
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.session import connection
from swe_rollout.sandbox.session.frames import SupervisorState
from swe_rollout.sandbox.session.keys import SessionKeys, SessionLife
from swe_rollout.sandbox.session.session import Session

KEYS = SessionKeys(bytes(range(32)))
KEY = KEYS.of("one")


class Processes:
    """Processes with the same sandbox, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self._folder = folder
        self._openers: list[CutStreamOpener] = []

    async def begins(self) -> Session:
        """Return the session of the first one."""
        return await self._session(SessionLife(KEY))

    async def follows(self, number: int, key: bytes = KEY) -> Session:
        """Return the session of a later one."""
        return await self._session(SessionLife(key, number))

    async def _session(self, life: SessionLife) -> Session:
        is_first = not self._openers
        folder = self._folder / str(len(self._openers))
        folder.mkdir()
        opener = CutStreamOpener(folder)
        self._openers.append(opener)
        opener.socket = self._openers[0].socket
        return await Session.open(
            await opener.start() if is_first else await opener.open(),
            workdir=str(self.work),
            opener=opener,
            trees={"work": str(self.work)},
            timeout_s=5,
            life=life,
        )

    async def dies(self, session: Session) -> None:
        """End the last process without a word to the supervisor."""
        await session._client._tasks.stop()
        self.cut()

    def cut(self) -> None:
        """Cut the stream of the last process."""
        self._openers[-1].now.cut()

    async def close(self) -> None:
        """End all that is left, the supervisor last."""
        for opener in reversed(self._openers):
            await opener.close()


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    made = Processes(tmp_path)
    yield made
    await made.close()


async def test_a_later_process_finds_what_runs_and_knows_that_nothing_was_begun(
    processes: Processes,
) -> None:
    first = await processes.begins()
    first.track()
    await first.exec("sleep 300 >/dev/null & echo $! >pid; echo x >>counter")
    await first.changes()
    before = await first.state()
    await processes.dies(first)

    second = await processes.follows(3)
    assert await second.state() == before
    second.follow(1)
    alive = await second.exec('kill -0 "$(cat pid)" && echo alive; echo y >>counter')
    assert alive.stdout == b"alive\n"
    assert await second.read_file("counter") == b"x\ny\n"
    delta = await second.changes()
    assert (delta.number, delta.removed) == (2, 0)
    await second.exec('kill "$(cat pid)"')
    await second.close()


async def test_what_can_change_something_counts_and_nothing_else_does(
    processes: Processes,
) -> None:
    session = await processes.begins()
    session.track()
    await session.ping()
    await session.changes()
    assert await session.state() == SupervisorState(0, 0)
    await session.exec("true")
    await session.write_file("new", b"x")
    await session.read_file("new")
    with pytest.raises(FileNotFoundError):
        await session.read_file("missing")
    await session.changes()
    assert await session.state() == SupervisorState(4, 0)
    await session.end_processes()
    assert await session.state() == SupervisorState(5, 0)
    await session.close()


async def test_a_command_that_runs_when_its_process_dies_shows(processes: Processes) -> None:
    first = await processes.begins()
    await first.exec("true")
    mark = await first.state()
    running = asyncio.create_task(first.exec("sleep 1; echo x >>counter"))
    await asyncio.sleep(0)
    await first.ping()  # which arrives behind it
    await processes.dies(first)
    running.cancel()

    second = await processes.follows(1)
    assert mark is not None
    found = await second.state()
    assert found is not None
    assert found.effects == mark.effects + 1
    await second.close()


@pytest.mark.parametrize(
    ("number", "key"),
    [(9, KEYS.of("another")), (0, KEY), (1, KEY)],
    ids=["no key", "no life", "an earlier life"],
)
async def test_without_the_key_or_a_higher_number_nobody_goes_on(
    processes: Processes, number: int, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a command with a key of its own, nor a process that was taken for dead."""
    monkeypatch.setattr(connection, "REATTACH_S", 0.3)
    await processes.begins()
    owner = await processes.follows(2)
    with pytest.raises(SandboxError):
        await processes.follows(number, key)
    assert (await owner.exec("echo mine")).stdout == b"mine\n"
    await owner.close()


async def test_a_process_that_was_cut_off_loses_the_sandbox_to_its_successor(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again, and can neither run a command nor disturb the successor."""
    monkeypatch.setattr(connection, "REATTACH_S", 0.5)
    old = await processes.begins()
    processes.cut()  # from here on its stream is that of a relay, as in a pod
    await old.exec("echo old >>counter")
    new = await processes.follows(1)
    with pytest.raises(SandboxError):
        await asyncio.wait_for(old.exec("echo late >>counter"), 20)
    assert (await new.exec("cat counter")).stdout == b"old\n"
    await new.close()
    await old.close()


async def test_results_of_the_process_before_are_not_kept(processes: Processes) -> None:
    first = await processes.begins()
    await first.exec("head -c 100000 /dev/zero")
    await processes.dies(first)
    second = await processes.follows(1)
    client = second._client
    connected = client._current.connection
    states = await asyncio.wait_for(asyncio.shield(connected.states), 5)
    assert list(states.values()) == [True]
    await asyncio.sleep(1.2)  # after which a batch of acknowledgements is sent
    await second.ping()
    await processes.dies(second)
    third = await processes.follows(2)
    connected = third._client._current.connection
    assert await asyncio.wait_for(asyncio.shield(connected.states), 5) == {}
    await third.close()


async def test_what_a_command_of_another_process_gives_is_nobodys(processes: Processes) -> None:
    first = await processes.begins()
    running = asyncio.create_task(first.exec("while [ ! -e go ]; do sleep 0.01; done; echo old"))
    await asyncio.sleep(0)
    await first.ping()  # which arrives behind it
    await processes.dies(first)
    running.cancel()

    second = await processes.follows(1)
    await second.exec("touch go")
    while (state := await second.state()) and state.running:
        pass
    assert (await second.exec("echo new")).stdout == b"new\n"
    await second.close()
