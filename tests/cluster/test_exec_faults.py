"""Sandboxes while connections, kubelet, containerd, API server or the pod itself fail.

While the pod is healthy, callers notice nothing but time: no command is lost, none is run twice
(each leaves a line in a file). A pod that is gone is a typed error within seconds.

A proxy in front of the dev cluster cuts connections. Tests that stop a whole node use a cluster of
their own, in a second checkout.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.needs import CLUSTER, KUBECONFIG
from cluster.pods import running
from cluster.second_checkout import copy_checkout, script_environment
from rollout_dev.faults.fault_proxy import AcceptMode, CutMode, FaultProxy, FaultRules
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.pods import diagnose
from swe_rollout.sandbox.pods import running as running_pod
from swe_rollout.sandbox.pods.running import RunningPod

pytestmark = CLUSTER

TRACED = 'echo "$1" >>/root/trace; sleep "$2"; echo "did $1"'
"""Leaves a line each time it is started."""


def traced(sandbox: RunningPod, name: str, seconds: float) -> Awaitable[ExecResult]:
    return sandbox.exec(["sh", "-c", TRACED, "sh", name, str(seconds)], timeout_s=60.0)


async def survives(
    sandbox: RunningPod, break_it: Callable[[], Awaitable[None]], *, within_s: float = 90.0
) -> None:
    """Check that a running command and a later one get their results, once each."""
    async with asyncio.timeout(within_s):
        command = asyncio.create_task(_at_once(traced(sandbox, "first", 2)))
        await asyncio.sleep(0.7)
        await break_it()
        later = asyncio.create_task(_at_once(traced(sandbox, "later", 0)))
        assert (await command).stdout == b"did first\n"
        assert (await later).stdout == b"did later\n"
        assert (await sandbox.read_file("trace")) == b"first\nlater\n"


async def _at_once(work: Awaitable[ExecResult]) -> ExecResult:
    return await work


# --- connections ---------------------------------------------------------------------------------


def dev_cluster() -> dict[str, Any]:
    """The dev cluster's kubeconfig."""
    config: dict[str, Any] = yaml.safe_load(Path(KUBECONFIG).read_text())
    return config


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    """A proxy in front of the dev cluster's API server, through which $KUBECONFIG leads."""
    config = dev_cluster()
    (cluster,) = (entry["cluster"] for entry in config["clusters"])
    host, port = cluster["server"].removeprefix("https://").rsplit(":", 1)
    async with FaultProxy(host, int(port)) as opened:
        cluster["server"] = f"https://127.0.0.1:{opened.port}"
        cluster["tls-server-name"] = host
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield opened


@pytest.fixture
def keen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ping every second, so that silence is noticed within the test's timeout."""
    monkeypatch.setattr(running_pod, "KEEPALIVE_S", 1.0)


@pytest.mark.parametrize("end", list(CutMode))
async def test_a_connection_that_ends_is_replaced(proxy: FaultProxy, end: CutMode) -> None:
    async def cut() -> None:
        proxy.cut(end)

    async with running() as sandbox:
        await survives(sandbox, cut)


@pytest.mark.slow
async def test_a_server_that_is_down_for_a_while_is_waited_for(proxy: FaultProxy) -> None:
    async def down() -> None:
        proxy.rules = FaultRules(accept=AcceptMode.REFUSED)
        proxy.cut()
        await asyncio.sleep(5)
        proxy.rules = FaultRules()

    async with running() as sandbox:
        await survives(sandbox, down)


async def test_a_bit_that_is_wrong_costs_the_connection_and_nothing_else(
    proxy: FaultProxy,
) -> None:
    async def corrupt() -> None:
        proxy.rules = FaultRules(corrupt_after=1)
        await asyncio.sleep(2.5)
        proxy.rules = FaultRules()

    async with running() as sandbox:
        await survives(sandbox, corrupt)


async def test_slow_handshakes(proxy: FaultProxy) -> None:
    async def slow() -> None:
        proxy.rules = FaultRules(accept=AcceptMode.SLOW, slow_s=4.0)
        proxy.cut()

    async with running() as sandbox:
        await survives(sandbox, slow)


@pytest.mark.slow
@pytest.mark.usefixtures("keen")
async def test_a_connection_that_falls_silent_is_replaced(proxy: FaultProxy) -> None:
    async def silence() -> None:
        proxy.silence()

    async with running() as sandbox:
        await survives(sandbox, silence)


async def test_twenty_commands_over_connections_that_keep_breaking(proxy: FaultProxy) -> None:
    async def keep_cutting() -> None:
        while True:
            await asyncio.sleep(random.uniform(0.05, 1.0))
            proxy.cut(random.choice(list(CutMode)))

    async with running() as sandbox:
        cutting = asyncio.create_task(keep_cutting())
        names = [str(number) for number in range(20)]
        async with asyncio.timeout(240):
            for first, second in zip(names[::2], names[1::2], strict=True):
                results = await asyncio.gather(
                    _at_once(traced(sandbox, first, 0.2)), _at_once(traced(sandbox, second, 0))
                )
                assert [r.stdout for r in results] == [
                    f"did {first}\n".encode(),
                    f"did {second}\n".encode(),
                ]
        cutting.cancel()
        trace = (await sandbox.read_file("trace")).decode().split()
        assert sorted(trace, key=int) == names


async def test_large_data_arrives_whole_over_connections_that_break(proxy: FaultProxy) -> None:
    content = random.randbytes(8 << 20)

    async def cut_twice() -> None:
        for _ in range(2):
            await asyncio.sleep(0.15)
            proxy.cut()

    async with running() as sandbox, asyncio.timeout(90):
        cutting = asyncio.create_task(cut_twice())
        await sandbox.write_file("data", content)
        await cutting
        cutting = asyncio.create_task(cut_twice())
        assert await sandbox.read_file("data") == content
        await cutting


async def test_a_pod_deleted_behind_a_silent_connection_is_reported_after_reconnecting(
    proxy: FaultProxy,
) -> None:
    async with running() as sandbox:
        command = asyncio.create_task(_at_once(traced(sandbox, "first", 30)))
        await asyncio.sleep(0.7)
        proxy.rules = FaultRules(accept=AcceptMode.REFUSED)
        proxy.cut()
        await delete(sandbox, kubeconfig=KUBECONFIG)
        proxy.rules = FaultRules()
        with pytest.raises(diagnose.PodLostError):
            await asyncio.wait_for(command, 60)


# --- a node of our own ---------------------------------------------------------------------------


def script(root: Path, *command: str) -> str:
    """What one of a checkout's scripts prints."""
    done = subprocess.run(
        [str(root / "scripts" / command[0]), *command[1:]],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        env=script_environment(root),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout with a cluster that only this module uses."""
    if os.geteuid() != 0:
        pytest.skip("needs root: sudo -E make test-cluster")
    root = tmp_path_factory.mktemp("faults")
    copy_checkout(root)
    try:
        script(root, "dev-cluster", "up", "--native")
        script(root, "build-images", "busybox", "--load")
        yield root
    finally:
        script(root, "dev-cluster", "down", "--wipe")


@pytest.fixture
def on_node(node: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with $KUBECONFIG leading there."""
    monkeypatch.setenv("KUBECONFIG", str(node / ".dev-cluster" / "kubeconfig"))
    return node


def component(root: Path, name: str) -> int:
    """The pid of one of the cluster's processes, which is running."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        status = json.loads(script(root, "dev-cluster", "status", "-o", "json"))
        pid = status["components"][name]
        if pid:
            return int(pid)
        time.sleep(0.2)
    raise AssertionError(f"{name} does not run")


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("name", ["kubelet", "containerd", "kube-apiserver"])
async def test_a_component_that_is_killed_and_comes_back_loses_nothing(
    on_node: Path, name: str
) -> None:
    async def kill() -> None:
        os.kill(component(on_node, name), signal.SIGKILL)

    async with running() as sandbox:
        await survives(sandbox, kill, within_s=120.0)
    component(on_node, name)


async def test_a_kubelet_that_pauses_is_waited_for(on_node: Path) -> None:
    async def pause() -> None:
        with paused(component(on_node, "kubelet")):
            await asyncio.sleep(8)

    async with running() as sandbox:
        await survives(sandbox, pause)


@pytest.mark.slow
@pytest.mark.usefixtures("keen")
async def test_a_kubelet_that_pauses_until_its_stream_is_given_up(
    on_node: Path,
) -> None:
    async def pause() -> None:
        with paused(component(on_node, "kubelet")):
            await asyncio.sleep(30)

    async with running() as sandbox:
        await survives(sandbox, pause, within_s=120.0)
    await node_takes_pods()


async def node_takes_pods() -> None:
    """Wait until the taint that the node got for its silence is removed."""
    client = await ClusterClient.connect()
    async with asyncio.timeout(120):
        while True:
            response = await client.transport.request("GET", "/api/v1/nodes", doing="list nodes")
            if all("taints" not in node["spec"] for node in json.loads(response)["items"]):
                break
            await asyncio.sleep(0.5)
    await client.aclose()


async def test_a_pod_removed_while_its_kubelet_pauses_is_reported_within_seconds(
    on_node: Path,
) -> None:
    async with running() as sandbox:
        command = asyncio.create_task(_at_once(traced(sandbox, "first", 60)))
        await asyncio.sleep(0.7)
        with paused(component(on_node, "kubelet")):
            await delete(sandbox, grace_period_s=0)
            with pytest.raises(diagnose.PodLostError):
                await asyncio.wait_for(command, 15)


async def test_a_container_that_is_killed_is_reported_with_its_exit_code(on_node: Path) -> None:
    assert on_node
    async with running() as sandbox:
        command = asyncio.create_task(_at_once(traced(sandbox, "first", 60)))
        await asyncio.sleep(0.7)
        os.kill(first_process(await uid_of(sandbox)), signal.SIGKILL)
        with pytest.raises(SandboxError, match="137") as caught:
            await asyncio.wait_for(command, 15)
        assert caught.value.retryable
        with pytest.raises(SandboxError):
            await sandbox.exec("true")


def first_process(uid: str) -> int:
    """The pid, on this machine, of process 1 in the container of the pod with this uid."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            group = (folder / "cgroup").read_text()
            words = (folder / "cmdline").read_bytes()
            status = (folder / "status").read_text()
        except OSError:  # it has ended
            continue
        inner = next((line.split()[-1] for line in status.splitlines() if "NSpid" in line), "")
        if uid in group and inner == "1" and b"supervisor" in words:
            return int(folder.name)
    raise AssertionError("no such process")


async def delete(
    sandbox: RunningPod, *, grace_period_s: int = 1, kubeconfig: str | None = None
) -> None:
    """Delete the sandbox's pod, past any proxy."""
    uid = await uid_of(sandbox, kubeconfig=kubeconfig)
    with pytest.MonkeyPatch.context() as patch:
        if kubeconfig is not None:
            patch.setenv("KUBECONFIG", kubeconfig)
        client = await ClusterClient.connect()
        await client.delete(PODS, "default", sandbox.name, uid=uid, grace_s=grace_period_s)
        await client.aclose()


async def uid_of(sandbox: RunningPod, *, kubeconfig: str | None = None) -> str:
    with pytest.MonkeyPatch.context() as patch:
        if kubeconfig is not None:
            patch.setenv("KUBECONFIG", kubeconfig)
        client = await ClusterClient.connect()
        found = await client.get(PODS, "default", sandbox.name)
        await client.aclose()
    return found.metadata.uid
