"""Sessions in real pods: streams that break, and files larger than memory."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from cluster.needs import BASE, BUSYBOX, CLUSTER
from cluster.pods import pods, running, until
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecStream
from swe_rollout.cluster.objects import PODS
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session import bootstrap

pytestmark = CLUSTER


@pytest.fixture(params=[BASE, BUSYBOX], ids=["debian", "busybox"])
async def sandbox(
    modules_namespace: str, request: pytest.FixtureRequest
) -> AsyncIterator[RunningPod]:
    async with running(request.param, pods(modules_namespace, disk="3Gi")) as sandbox:
        yield sandbox


def stream_of(sandbox: RunningPod) -> ExecStream:
    """The WebSocket a sandbox uses now."""
    channel = sandbox._session._client._current.connection.channel
    stream: ExecStream = channel._stream  # type: ignore[attr-defined]
    return stream


async def test_commands_survive_streams_that_break_and_run_once(sandbox: RunningPod) -> None:
    chance = random.Random(11)

    async def one(number: int) -> bool:
        await asyncio.sleep(chance.uniform(0, 4))
        size = chance.choice((0, 10, 300_000))
        script = f"echo {number} >>counter; sleep 0.{number % 7}; wc -c; head -c {size} /dev/zero"
        result = await sandbox.exec(script, stdin=bytes(size))
        return result.stdout.split()[:1] == [b"%d" % size] and result.stdout.endswith(bytes(size))

    async def cutting() -> None:
        for _ in range(8):
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            stream_of(sandbox)._shut_down()

    cutter = asyncio.create_task(cutting())
    right = await asyncio.wait_for(asyncio.gather(*map(one, range(30))), 60)
    await cutter
    assert right == [True] * 30
    lines = (await sandbox.read_file("counter")).split()
    assert Counter(lines) == Counter(b"%d" % number for number in range(30))


async def test_an_abandoned_session_ends_its_pod(
    client: ClusterClient, modules_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "ORPHAN_S", 1.0)
    async with running(BASE, pods(modules_namespace)) as sandbox:
        # As when the worker is killed: the session is neither closed nor used again.
        await sandbox._session._client._tasks.stop()
        stream_of(sandbox)._shut_down()

        async def ended() -> bool:
            pod = await client.get(PODS, modules_namespace, sandbox.name)
            return pod.status.phase == "Succeeded"

        await until(ended)
