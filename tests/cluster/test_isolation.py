"""The isolation of a sandbox, checked from inside, and the Pod Security levels it passes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pytest

from cluster.needs import BASE, CLUSTER
from cluster.pods import end_namespace, make_namespace, pods, read, request, running, until
from cluster.site import kubectl
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.doctor import CheckLevel
from swe_rollout.cluster.objects import PODS
from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.pods import diagnose, pod_spec
from swe_rollout.sandbox.pods.isolation import FORBIDDEN_HOSTS, check_isolation
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.script import read_script
from swe_rollout.spec.sandbox import PodSandbox

pytestmark = CLUSTER
Spec: TypeAlias = Callable[..., PodSandbox]
USER = 1234
LEVEL = "pod-security.kubernetes.io/enforce"
SERVE = (
    "import http.server as h; h.HTTPServer(('', 8000), h.SimpleHTTPRequestHandler).serve_forever()"
)


@pytest.fixture
def spec(modules_namespace: str) -> Spec:
    """Make the spec of small pods in a namespace of the module."""
    return partial(pods, modules_namespace, disk="64Mi")


@asynccontextmanager
async def started(wanted: PodSandbox) -> AsyncIterator[RunningPod]:
    async with running(BASE, wanted, workdir="/tmp", deadline_s=600.0) as sandbox:  # noqa: S108
        yield sandbox


# --- from inside ---------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [None, USER], ids=["root", "another user"])
async def test_every_isolation_check_passes(
    user: int | None, client: ClusterClient, spec: Spec, modules_namespace: str
) -> None:
    async with started(spec()) as other, started(spec(run_as_user=user)) as sandbox:
        serving = asyncio.create_task(other.exec(["python3", "-c", SERVE]))
        own, neighbour = [
            (await read(client, PODS.path(modules_namespace, each.name)))["status"]
            for each in (sandbox, other)
        ]
        hosts = (
            *FORBIDDEN_HOSTS,
            ("10.96.0.10", "53"),
            (own["hostIP"], "10250"),
            (neighbour["podIP"], "8000"),
        )

        async def closed() -> bool:
            checks = await check_isolation(sandbox, hosts=hosts)
            return all(check.level is CheckLevel.OK for check in checks)

        # A policy takes effect a moment after the pod has its address.
        await until(closed, within_s=40)
        checks = {check.name: check.text for check in await check_isolation(sandbox, hosts=hosts)}
        # The five, and the API server.
        assert checks["network"].count(":") == 1 + 6
        powers = "user 0: CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID"
        assert checks["capabilities"] == (powers if user is None else f"user {USER}: none")
        serving.cancel()


@dataclass
class RecordedOutput:
    """A sandbox whose only command printed this."""

    output: bytes

    async def exec(self, *_: object, **__: object) -> ExecResult:
        return ExecResult(0, self.output, b"")


async def test_missing_isolation_is_reported(client: ClusterClient, modules_namespace: str) -> None:
    """The same checks in a privileged pod, in a namespace without a policy."""
    name = f"{modules_namespace}-open"
    await make_namespace(client, name)
    container = {
        "name": "c",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "60"],
        "securityContext": {"privileged": True},
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "open", "namespace": name},
        "spec": {"containers": [container], "dnsPolicy": "Default"},
    }
    await asyncio.to_thread(kubectl, "create", "-f", "-", stdin=json.dumps(manifest))
    wait = ("wait", "--for=condition=Ready", "pod/open", "-n", name, "--timeout=60s")
    await asyncio.to_thread(kubectl, *wait)
    script = read_script("isolation")
    run = ("exec", "open", "-n", name, "--", "/bin/sh", "-c", script, "isolation", "10.0.0.1", "1")
    recorded: Any = RecordedOutput((await asyncio.to_thread(kubectl, *run)).encode())
    checks = {check.name: check for check in await check_isolation(recorded)}
    failed = {name for name, check in checks.items() if check.level is CheckLevel.FAIL}
    assert failed >= {"credentials", "capabilities", "system calls", "kernel files", "network"}
    assert "SYS_ADMIN" in checks["capabilities"].text
    assert "NetworkPolicy" in checks["network"].fix
    await end_namespace(client, name)


async def test_the_cluster_is_not_in_the_environment(spec: Spec) -> None:
    async with started(spec()) as sandbox:
        environment = (await sandbox.exec("env")).stdout
    # The API server's own service is always announced; others would be by service links.
    others = [
        line
        for line in environment.splitlines()
        if b"_SERVICE_HOST=" in line and not line.startswith(b"KUBERNETES_")
    ]
    assert others == []


async def test_mounting_raw_sockets_and_devices_are_refused(spec: Spec) -> None:
    async with started(spec()) as sandbox:
        assert not (await sandbox.exec("mount -t tmpfs none /mnt")).ok
        assert not (await sandbox.exec("mknod disk b 8 0")).ok
        raw = "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"
        result = await sandbox.exec(["python3", "-c", raw])
        assert b"PermissionError" in result.stderr


async def test_root_may_still_do_what_test_suites_do(spec: Spec) -> None:
    async with started(spec()) as sandbox:
        result = await sandbox.exec("touch f && chown 1000:1000 f && chmod 600 f && cat f")
        assert result.ok, result.stderr


# --- what a sandbox may use ----------------------------------------------------------------------

FORKS = """
import os, time
try:
    for _ in range(20_000):
        if os.fork() == 0:
            time.sleep(600)
except OSError as error:
    print(error.strerror, flush=True)
time.sleep(600)
"""


async def test_processes_are_bounded_and_end_with_their_command(spec: Spec) -> None:
    # Room for as many as the node allows: without it, memory ends them first.
    async with started(spec(memory="4Gi")) as sandbox:
        result = await sandbox.exec(["python3", "-c", FORKS], timeout_s=15)
        assert result.timed_out
        assert result.stdout in (b"Resource temporarily unavailable\n", b"Cannot allocate memory\n")
        assert (await sandbox.exec("echo well")).stdout == b"well\n"


async def test_processes_that_use_up_the_memory_end_before_the_supervisor(spec: Spec) -> None:
    async with started(spec(memory="128Mi")) as sandbox:
        try:
            await sandbox.exec(["python3", "-c", FORKS], timeout_s=15)
        except SandboxError as error:
            # Where the container is one memory group, the kernel ends all of it.
            assert isinstance(error, diagnose.OutOfMemoryError)  # noqa: PT017 - one of two outcomes
        else:
            assert (await sandbox.exec("echo well")).stdout == b"well\n"


@pytest.mark.slow
async def test_exceeding_the_disk_request_ends_the_pod_with_a_reason(spec: Spec) -> None:
    async with started(spec()) as sandbox:
        with pytest.raises(SandboxError, match=r"Evicted|ephemeral"):
            await sandbox.exec("head -c 200000000 /dev/zero >big; sleep 110", timeout_s=120)


async def test_a_runtime_class_is_what_runs_the_pod(
    client: ClusterClient, spec: Spec, modules_namespace: str
) -> None:
    name = f"{modules_namespace}-runc"
    kind = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "runc",
    }
    await asyncio.to_thread(kubectl, "create", "-f", "-", stdin=json.dumps(kind))
    try:
        async with started(spec(runtime_class=name)) as sandbox:
            assert (await sandbox.exec("echo well")).stdout == b"well\n"
            found = await read(client, PODS.path(modules_namespace, sandbox.name))
            assert found["spec"]["runtimeClassName"] == name
    finally:
        await asyncio.to_thread(kubectl, "delete", "runtimeclass", name)
    with pytest.raises(SandboxError, match="RuntimeClass"):
        async with started(spec(runtime_class="no-such")):
            pass


# --- Pod Security --------------------------------------------------------------------------------


@asynccontextmanager
async def level(client: ClusterClient, name: str) -> AsyncIterator[str]:
    namespace = f"swe-rollout-test-{secrets.token_hex(4)}"
    await make_namespace(client, namespace, **{LEVEL: name})
    yield namespace
    await end_namespace(client, namespace)


def manifest() -> Any:
    owner = pod_spec.RunIdentity(run="0" * 12, started="2026-11-21T10:00:00+00:00")
    return pod_spec.pod_manifest(request(BASE), pods(), owner)


async def test_the_default_pod_passes_baseline(client: ClusterClient) -> None:
    async with level(client, "baseline") as namespace:
        await client.create(PODS, namespace, manifest(), strict=True, dry_run=True)


async def test_all_that_keeps_the_default_pod_from_restricted_is_root(
    client: ClusterClient,
) -> None:
    async with level(client, "restricted") as namespace:
        with pytest.raises(ApiError) as caught:
            await client.create(PODS, namespace, manifest(), strict=True, dry_run=True)
        found = caught.value.message.partition("restricted:latest")[2]
        assert "unrestricted capabilities" in found
        assert "runAsNonRoot" in found
        # Each finding is explained in brackets.
        assert found.count("(") == 2


async def test_a_user_of_its_own_passes_restricted(client: ClusterClient) -> None:
    async with level(client, "restricted") as namespace:
        wanted = pods(namespace, run_as_user=USER)
        async with started(wanted) as sandbox:
            assert (await sandbox.exec("id -u; echo x >f; cat f")).stdout == b"%d\nx\n" % USER
            assert not (await sandbox.exec("echo x >/etc/motd")).ok
            name = sandbox.name
            await sandbox.close()
            now = await client.get(PODS, namespace, name)
            assert now.status.phase in ("Running", "Succeeded")


async def test_the_refusal_names_the_fix(client: ClusterClient) -> None:
    async with level(client, "restricted") as namespace:
        with pytest.raises(PrerequisiteError) as caught:
            async with started(pods(namespace)):
                pass
        assert "runAsUser" in caught.value.fix
