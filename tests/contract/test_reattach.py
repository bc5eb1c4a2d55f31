"""A stream that breaks loses no result and runs nothing twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.cut_channel import CutStreamOpener
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.session import connection
from swe_rollout.sandbox.session.channel import RelayEndedError, StreamLostError
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.sandbox.session.session import Session
from swe_rollout.types.deadline import CLOCK, Deadline
from waits import PATIENCE_S, stands, until

COMMANDS, CUTS = 24, 16


@pytest.fixture
def opener(tmp_path: Path) -> CutStreamOpener:
    return CutStreamOpener(tmp_path)


@pytest.fixture
async def session(tmp_path: Path, opener: CutStreamOpener) -> AsyncIterator[Session]:
    channel = await opener.start()
    session = await Session.open(channel, workdir=str(tmp_path), opener=opener)
    yield session
    await session.close()


async def test_a_command_that_runs_while_the_stream_breaks_has_its_result(
    session: Session, opener: CutStreamOpener
) -> None:
    task = asyncio.create_task(session.exec("sleep 0.5; echo done; echo x >>counter; exit 3"))
    await asyncio.sleep(0.2)
    opener.now.cut()
    result = await asyncio.wait_for(task, PATIENCE_S)
    assert (result.stdout, result.exit_code) == (b"done\n", 3)
    assert await session.read_file("counter") == b"x\n"
    assert len(opener.channels) == 2


@pytest.mark.parametrize(
    ("way", "is_platforms"), [(StreamLostError, True), (RelayEndedError, False)]
)
async def test_the_clock_stands_while_no_stream_reaches_the_sandbox_unless_that_is_its_own_doing(
    session: Session,
    opener: CutStreamOpener,
    tmp_path: Path,
    way: type[StreamLostError],
    *,
    is_platforms: bool,
) -> None:
    clock = Deadline(3600)
    token = CLOCK.set(clock)
    command = "touch runs; until [ -e may-end ]; do sleep 0.05; done; echo done"
    task = asyncio.create_task(session.exec(command))
    CLOCK.reset(token)
    await until((tmp_path / "runs").exists)
    opener.reachable.clear()
    opener.now.way = way
    opener.now.cut()
    if is_platforms:
        await until(lambda: stands(clock))
    await asyncio.sleep(0.1)
    assert stands(clock) is is_platforms
    opener.reachable.set()
    (tmp_path / "may-end").touch()
    assert (await asyncio.wait_for(task, PATIENCE_S)).stdout == b"done\n"
    assert not stands(clock)


async def test_a_result_that_did_not_arrive_is_sent_again(
    session: Session, opener: CutStreamOpener
) -> None:
    opener.now.left = 1 << 16
    result = await asyncio.wait_for(
        session.exec("head -c 300000 /dev/zero; echo x >>counter"), PATIENCE_S
    )
    assert result.stdout == bytes(300_000)
    assert await session.read_file("counter") == b"x\n"


async def test_a_delta_that_did_not_arrive_is_sent_again(
    tmp_path: Path, opener: CutStreamOpener
) -> None:
    (work := tmp_path / "work").mkdir()
    session = await Session.open(
        await opener.start(), workdir=str(work), opener=opener, trees={"work": str(work)}
    )
    session.track()
    await session.write_file("large", os.urandom(300_000))
    opener.now.left = 1 << 16
    delta = await asyncio.wait_for(session.changes(), PATIENCE_S)
    assert (delta.number, delta.files) == (1, len(("", "large")))
    assert len(opener.channels) == 2
    assert not await session.changes()
    await session.close()


async def test_half_a_request_is_dropped_and_sent_again(
    session: Session, opener: CutStreamOpener
) -> None:
    stdin = os.urandom(3_000_000)
    opener.now.left = 2_000_000
    result = await asyncio.wait_for(
        session.exec("wc -c; echo x >>counter", stdin=stdin), PATIENCE_S
    )
    assert result.stdout.split() == [b"3000000"]
    assert await session.read_file("counter") == b"x\n"


async def test_a_stream_that_falls_silent_is_replaced(
    session: Session, opener: CutStreamOpener
) -> None:
    task = asyncio.create_task(session.exec("sleep 0.5; echo done; echo x >>counter"))
    await asyncio.sleep(0.2)
    opener.now.fall_silent()
    await asyncio.wait_for(session.ping(timeout_s=0.3), PATIENCE_S)
    assert (await asyncio.wait_for(task, PATIENCE_S)).stdout == b"done\n"
    assert await session.read_file("counter") == b"x\n"


async def test_a_network_that_is_down_for_a_while_is_waited_for(
    session: Session, opener: CutStreamOpener
) -> None:
    opener.refusals = 3
    opener.now.cut()
    assert (await asyncio.wait_for(session.exec("echo well"), PATIENCE_S)).stdout == b"well\n"


async def test_a_network_that_stays_down_is_a_lost_sandbox(
    session: Session, opener: CutStreamOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REATTACH_S", 0.2)
    opener.refusals = 1000
    opener.now.cut()
    with pytest.raises(SandboxError, match="refused"):
        await asyncio.wait_for(session.exec("true"), PATIENCE_S)


async def test_a_supervisor_that_was_killed_is_a_lost_sandbox(
    session: Session, opener: CutStreamOpener
) -> None:
    # Where it is process 1, no command can do this.
    killing = ["kill", "-KILL", str(opener.channels[0].process.pid)]
    for command in (killing, ["true"]):
        with pytest.raises(SandboxError):
            await asyncio.wait_for(session.exec(command), PATIENCE_S)


async def test_a_killed_relay_is_replaced(session: Session, opener: CutStreamOpener) -> None:
    opener.now.cut()
    await session.exec("true")
    relay = str(opener.now.process.pid)
    result = await asyncio.wait_for(
        session.exec(f"kill -KILL {relay}; echo x >>counter"), PATIENCE_S
    )
    assert result.ok
    assert await session.read_file("counter") == b"x\n"
    assert len(opener.channels) == 3


async def test_a_supervisor_that_was_stopped_goes_on_with_the_next_stream(
    session: Session, opener: CutStreamOpener
) -> None:
    pid = opener.channels[0].process.pid
    os.kill(pid, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(1, os.kill, pid, signal.SIGCONT)
    await asyncio.wait_for(session.ping(timeout_s=0.3), PATIENCE_S)
    assert (await session.exec("echo well")).stdout == b"well\n"


async def test_after_many_breaks_everything_ran_exactly_once(
    session: Session, opener: CutStreamOpener, tmp_path: Path
) -> None:
    chance = random.Random(7)

    async def one(number: int) -> bool:
        await asyncio.sleep(chance.uniform(0, 2))
        size = chance.choice((0, 10, 100_000))
        script = f"echo {number} >>counter; sleep 0.{number % 5}; wc -c; head -c {size} /dev/zero"
        result = await session.exec(script, stdin=bytes(size))
        return result.stdout == b"%d\n" % size + bytes(size)

    async def cutting() -> None:
        for _ in range(CUTS):  # a slow machine may take longer than a pause to connect again
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            match chance.randrange(4):
                case 0:
                    opener.now.cut()
                case 1:
                    opener.now.fall_silent()
                case 2:
                    opener.now.left = chance.randrange(200_000)
                case _:
                    opener.now.left = chance.randrange(200)

    cutter = asyncio.create_task(cutting())
    right = await asyncio.wait_for(asyncio.gather(*map(one, range(COMMANDS))), 2 * PATIENCE_S)
    await cutter
    opener.now.left = None
    assert right == [True] * COMMANDS
    lines = (tmp_path / "counter").read_text("ascii").split()
    assert Counter(lines) == Counter(map(str, range(COMMANDS)))
    assert len(opener.channels) > 3


async def test_a_goodbye_ends_the_supervisor_at_once(
    session: Session, opener: CutStreamOpener
) -> None:
    await session.exec("true")
    await session.close()
    assert opener.channels[0].process.returncode is not None


async def test_a_session_that_never_comes_back_is_given_up(
    tmp_path: Path, opener: CutStreamOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REATTACH_S", 0.0)
    channel = await opener.start(orphan_s=0.5)
    session = await Session.open(channel, workdir=str(tmp_path), opener=opener)
    opener.refusals = 1000
    opener.now.cut()
    with pytest.raises(SandboxError):
        await session.exec("true")
    await asyncio.wait_for(opener.channels[0].process.wait(), PATIENCE_S)
    await session.close()


async def test_another_process_attaches_though_its_first_greeting_was_lost(
    tmp_path: Path, opener: CutStreamOpener
) -> None:
    lives = [SessionLife(bytes(32), number, tried) for number, tried in ((0, 0), (1, 0), (1, 1))]
    for life in lives:
        channel = await (opener.open() if opener.channels else opener.start())
        session = await Session.open(channel, workdir=str(tmp_path), life=life)
        opener.now.cut()
        await session.close()
    await opener.close()
