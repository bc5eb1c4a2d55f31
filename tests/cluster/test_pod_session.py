"""Sessions in real pods: streams that break, and files larger than memory."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from cluster.needs import BASE, BUSYBOX, CLUSTER, KUBECONFIG
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecStream
from swe_rollout.cluster.objects import PODS
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.types.episode import EpisodeId

pytestmark = CLUSTER
SAMPLES = itertools.count()


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    name = f"swe-rollout-session-{secrets.token_hex(4)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", KUBECONFIG)
        body = json.dumps({"metadata": {"name": name}}).encode()
        asyncio.run(_namespaces("POST", "", body))
        yield name
        asyncio.run(_namespaces("DELETE", f"/{name}", b""))


async def _namespaces(method: str, path: str, body: bytes) -> None:
    client = await ClusterClient.connect()
    url = f"/api/v1/namespaces{path}"
    await client.transport.request(method, url, doing="a namespace of the test", body=body)
    await client.aclose()


async def running(namespace: str, image: str, *, memory: str = "256Mi") -> AsyncIterator[Sandbox]:
    spec = PodSandbox(
        namespace=namespace,
        resources=Resources(cpu="50m", memory=memory, ephemeral_storage="3Gi"),
    )
    provider = PodProvider(spec, job="test-pod-session")
    request = SandboxRequest(
        episode=EpisodeId("test-pod-session", "one__one-1", next(SAMPLES)),
        role=Role.AGENT,
        image=image,
        workdir="/root",
        deadline_s=900.0,
    )
    sandbox = await provider.start(request)
    yield sandbox
    await sandbox.close()
    await provider.aclose()


@pytest.fixture(params=[BASE, BUSYBOX], ids=["debian", "busybox"])
async def sandbox(namespace: str, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async for sandbox in running(namespace, request.param):
        yield sandbox


def stream_of(sandbox: Sandbox) -> ExecStream:
    """The WebSocket a sandbox uses now."""
    assert isinstance(sandbox, RunningPod)
    channel = sandbox._session._client._current.connection.channel
    stream: ExecStream = channel._stream  # type: ignore[attr-defined]
    return stream


async def test_commands_survive_streams_that_break_and_run_once(sandbox: Sandbox) -> None:
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
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "ORPHAN_S", 1.0)
    async for sandbox in running(namespace, BASE):
        assert isinstance(sandbox, RunningPod)
        # As when the worker is killed: the session is neither closed nor used again.
        await sandbox._session._client._tasks.stop()
        stream_of(sandbox)._shut_down()
        client = await ClusterClient.connect()
        until = time.monotonic() + 120
        phase = ""
        while phase != "Succeeded" and time.monotonic() < until:
            await asyncio.sleep(0.2)
            phase = (await client.get(PODS, namespace, sandbox.name)).status.phase
        await client.aclose()
        assert phase == "Succeeded"
