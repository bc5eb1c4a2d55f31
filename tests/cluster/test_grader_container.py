"""The grader's container beside an agent's: untouched by it, and used only where it is clean.

Each attack leaves something where both containers of the pod can look. Either it is gone, or
grading gets a pod of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from cluster.needs import BASE, CLUSTER
from cluster.pods import pods, provided, request
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod

pytestmark = [*CLUSTER, pytest.mark.threat(point=2)]
GRADING_S = 300.0


@pytest.fixture
async def provider() -> AsyncIterator[PodProvider]:
    async with provided(pods(memory="128Mi")) as opened:
        yield opened


async def followed(
    provider: PodProvider, agent: RunningPod, wanted: SandboxRequest
) -> tuple[bool, RunningPod]:
    """Close the agent's sandbox, and return whether the grader's is in the same pod, and it."""
    await agent.close()
    grader = await provider.start(replace(wanted, role=Role.GRADER, deadline_s=GRADING_S))
    return grader.pod.metadata.uid == agent.pod.metadata.uid, grader


def wanted() -> SandboxRequest:
    return request(BASE, grading_s=GRADING_S)


async def test_grading_follows_in_the_agents_pod_with_files_and_processes_of_its_own(
    provider: PodProvider,
) -> None:
    asked = wanted()
    agent = await provider.start(asked)
    await agent.exec("echo mine | tee /root/file /tmp/file; sleep 1000 & kill -STOP 1")
    is_same, grader = await followed(provider, agent, asked)
    assert is_same
    assert (await grader.exec("ls /root/file /tmp/file")).exit_code != 0
    seen = await grader.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert b"sleep 1000" not in seen.stdout
    assert (await grader.exec("echo ok")).stdout == b"ok\n"
    blind = await provider.start(replace(asked, role=Role.GRADER, part=9, deadline_s=GRADING_S))
    assert blind.pod.metadata.uid != agent.pod.metadata.uid, "it must not see what the tests saw"


REMOVED = {
    "file": "echo payload >/dev/shm/payload",
    "hidden file": "echo payload >/dev/shm/.payload; ln -s /etc /dev/shm/..payload",
    "folder of another user": "mkdir -p /dev/shm/a/b; chown -R 1000 /dev/shm/a; chmod 0 /dev/shm/a",
    "a supervisor": "mkdir -p /dev/shm/.swe-rollout; cp /bin/sh /dev/shm/.swe-rollout/supervisor",
    "semaphore": "python3 -c 'import _multiprocessing as m; "
    'm.SemLock(1, 1, 1, "/payload", False)\'',
}
ENDED = {
    "abstract socket": "import socket, time; s = socket.socket(socket.AF_UNIX)\n"
    's.bind("\\0payload"); s.listen()',
    "loopback listener": "import socket, time; s = socket.socket()\n"
    's.bind(("127.0.0.1", 4567)); s.listen()',
}
LEFT = {
    "shared memory": "import ctypes; assert ctypes.CDLL(None).shmget(7, 4096, 0o1600) >= 0",
    "semaphores": "import ctypes; assert ctypes.CDLL(None).semget(7, 4, 0o1600) >= 0",
    "message queue": "import ctypes; assert ctypes.CDLL(None).msgget(7, 0o1600) >= 0",
    "hosts": 'open("/etc/hosts", "a").write("127.0.0.1 payload")',
    "resolver": 'open("/etc/resolv.conf", "a").write("search payload")',
}


@pytest.mark.parametrize("script", REMOVED.values(), ids=REMOVED)
async def test_shared_files_are_removed(provider: PodProvider, script: str) -> None:
    asked = wanted()
    agent = await provider.start(asked)
    assert (await agent.exec(script)).ok
    is_same, grader = await followed(provider, agent, asked)
    assert is_same
    assert (
        await grader.exec("ls -A /dev/shm /dev/mqueue 2>/dev/null | grep payload")
    ).stdout == b""


@pytest.mark.parametrize("program", ENDED.values(), ids=ENDED)
async def test_listeners_end_with_the_agent(provider: PodProvider, program: str) -> None:
    asked = wanted()
    agent = await provider.start(asked)
    serve = program + '\nprint("ready", flush=True)\ntime.sleep(1000)'
    until_ready = 'python3 -c "$0" >/tmp/out & until grep ready /tmp/out; do sleep 0.1; done'
    begun = await agent.exec(["sh", "-c", until_ready, serve], timeout_s=20)
    assert begun.ok
    is_same, grader = await followed(provider, agent, asked)
    assert is_same
    listening = await grader.exec("cat /proc/net/unix /proc/net/tcp")
    assert b"payload" not in listening.stdout
    assert b":11D7" not in listening.stdout


@pytest.mark.parametrize("program", LEFT.values(), ids=LEFT)
async def test_what_cannot_be_removed_leaves_the_pod_unused(
    provider: PodProvider, program: str
) -> None:
    asked = wanted()
    agent = await provider.start(asked)
    left = await agent.exec(["python3", "-c", program])
    assert left.ok, left.stderr
    is_same, grader = await followed(provider, agent, asked)
    assert not is_same
    assert (await grader.exec("echo ok")).stdout == b"ok\n"


async def test_a_sandbox_that_used_up_its_memory_is_graded(provider: PodProvider) -> None:
    asked = wanted()
    agent = await provider.start(asked)
    await agent.exec("dd if=/dev/zero of=/dev/shm/full bs=1M count=60 2>/dev/null")
    _, grader = await followed(provider, agent, asked)
    used = await grader.exec(["python3", "-c", "assert len(bytearray(80 << 20))"])
    assert used.ok, used.stderr


async def test_a_pod_whose_grader_does_not_come_is_deleted(provider: PodProvider) -> None:
    agent = await provider.start(wanted())
    await agent.close()
    client = await ClusterClient.connect()
    try:
        async with asyncio.timeout(60):
            while (found := await client.find(PODS, "default", agent.name)) is not None:
                if found.metadata.deletion_timestamp is not None:
                    break
                await asyncio.sleep(0.2)
    finally:
        await client.aclose()
