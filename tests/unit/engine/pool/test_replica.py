"""An engine that is killed in the middle of a turn and restarted at the same address."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys

from checkout import UNIT
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.engine.pool.probe import ReplicaState
from swe_rollout.types.deadline import Deadline
from unit.engine.engine_parts import pool_of, request, states
from waits import PATIENCE_S, spared_s, until

SERVER = UNIT / "engine" / "engine_parts.py"


async def start(port: int, seconds: float) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, str(port), str(seconds), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline()
    return process


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def calls_in_flight(pool: EnginePool) -> int:
    return sum(len(replica.engine.calls) for replica in pool.replicas.values())


async def test_a_call_of_a_killed_engine_is_repeated_with_the_same_ids_after_its_restart() -> None:
    port = free_port()
    server = await start(port, 30)
    clock = Deadline(100)
    async with pool_of(f"http://127.0.0.1:{port}") as pool:
        call = asyncio.create_task(pool.generate(request(4, 5, 6, clock=clock)))
        await until(lambda: calls_in_flight(pool) == 1)
        await asyncio.sleep(0.5)
        await kill(server)
        await until(lambda: states(pool) == [ReplicaState.DOWN])
        assert not call.done()
        server = await start(port, 0)
        generation = await asyncio.wait_for(call, PATIENCE_S)
        # The guard checks the next turn against what was sent before the engine died.
        more = (4, 5, 6, *generation.token_ids, 7)
        assert (await pool.generate(request(*more, turn=1, clock=clock))).prompt_tokens == 6
        await kill(server)
    assert generation.token_ids == (3, 3)
    assert spared_s(clock, 100) > 0.49
