"""Sandboxes on a real cluster: the contract, the hardening, failed starts and losses."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import aiohttp
import pytest

from cluster.namespaces import end_namespace, make_namespace, until
from cluster.needs import BASE, BUSYBOX, CLUSTER, KUBECONFIG
from swe_rollout.cluster import doctor
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import NETWORK_POLICIES, PODS
from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods import diagnose, isolation, pod_spec
from swe_rollout.sandbox.pods import running as running_pod
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.testing.sandbox_contract import SandboxContract
from swe_rollout.types.episode import EpisodeId

pytestmark = CLUSTER

JOB = "test-pod-sandbox"
SMALL = PodSandbox(
    namespace="default",
    resources=Resources(cpu="50m", memory="256Mi", ephemeral_storage="256Mi"),
)
REQUEST = SandboxRequest(
    episode=EpisodeId(JOB, "one__one-1", 0),
    role=Role.AGENT,
    image=BUSYBOX,
    workdir="/root",
    deadline_s=600.0,
)


SAMPLES = itertools.count()


def request(*, image: str = BUSYBOX, **changes: Any) -> SandboxRequest:
    """A unique request: an earlier pod of the same name would have to be deleted first."""
    episode = replace(REQUEST.episode, sample=next(SAMPLES))
    return replace(REQUEST, image=image, episode=episode, **changes)


def provider(spec: PodSandbox = SMALL) -> PodProvider:
    return PodProvider(spec, job=JOB)


def limited(**resources: str) -> PodSandbox:
    return SMALL.model_copy(
        update={"resources": SMALL.resources.model_copy(update=resources), "start_seconds": 60.0}
    )


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", KUBECONFIG)
        yield
        asyncio.run(_until_nothing_is_left())


async def _until_nothing_is_left() -> None:
    client = await ClusterClient.connect()

    async def empty() -> bool:
        return not await pods(client)

    await until(empty, within_s=30)
    await client.aclose()


async def pods(client: ClusterClient) -> list[str]:
    found = await client.list(PODS, "default", labels=f"{pod_spec.JOB_LABEL}={JOB}")
    return [item.metadata.name for item in found.items]


async def running(image: str, spec: PodSandbox = SMALL) -> AsyncIterator[Sandbox]:
    starter = provider(spec)
    sandbox = await starter.start(request(image=image))
    yield sandbox
    await sandbox.close()
    await starter.aclose()


class TestBusybox(SandboxContract):
    delivers_interrupt: ClassVar[bool] = False

    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        async for sandbox in running(BUSYBOX):
            yield sandbox


class TestSandboxBase(SandboxContract):
    has_bash: ClassVar[bool] = True

    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        async for sandbox in running(BASE):
            yield sandbox


# --- starts that fail, quickly and with the reason -----------------------------------------------


async def failure(spec: PodSandbox, wanted: SandboxRequest) -> SandboxError:
    """The error before `start_seconds` are over; later it would be a PodStartError."""
    starter = provider(spec)
    try:
        with pytest.raises(SandboxError) as caught:
            await starter.start(wanted)
    finally:
        await starter.aclose()
    assert caught.value.why
    assert caught.value.fix
    return caught.value


async def test_an_image_that_is_not_on_the_node_and_may_not_be_pulled() -> None:
    spec = SMALL.model_copy(update={"image_pull_policy": "Never"})
    error = await failure(spec, request(image="swe-rollout/no-such:1"))
    assert isinstance(error, diagnose.ImageUnavailableError)
    assert "ErrImageNeverPull" in error.why
    assert not error.retryable


async def test_an_image_name_that_is_none() -> None:
    error = await failure(SMALL, request(image="Not A Name"))
    assert isinstance(error, diagnose.ImageUnavailableError)
    assert "InvalidImageName" in error.why


async def test_more_than_any_node_has() -> None:
    error = await failure(limited(cpu="1000"), request())
    assert isinstance(error, diagnose.UnschedulableError)
    assert "Insufficient cpu" in error.why


async def test_a_resource_that_can_not_be_read_is_refused() -> None:
    error = await failure(limited(memory="much"), request())
    assert isinstance(error, diagnose.PodRefusedError)
    assert not error.retryable


async def test_a_start_that_takes_too_long_reports_what_it_waited_for() -> None:
    spec = limited(cpu="1000").model_copy(update={"start_seconds": 2.0})
    error = await failure(spec, request())
    assert isinstance(error, diagnose.PodStartError)
    assert "Unschedulable" in error.why


async def test_a_cancelled_start_leaves_no_pod() -> None:
    starter = provider(limited(cpu="1000"))
    wanted = request()
    name = pod_spec.pod_name(wanted, pod_spec.RunIdentity("", ""))
    client = await ClusterClient.connect()

    async def there() -> bool:
        return name in await pods(client)

    async def gone() -> bool:
        return name not in await pods(client)

    task = asyncio.create_task(starter.start(wanted))
    await until(there, within_s=10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(gone, within_s=10)
    await client.aclose()
    await starter.aclose()


# --- sandboxes that are lost ---------------------------------------------------------------------


@pytest.fixture
async def client() -> AsyncIterator[ClusterClient]:
    client = await ClusterClient.connect()
    yield client
    await client.aclose()


@pytest.fixture
async def started() -> AsyncIterator[RunningPod]:
    starter = provider()
    sandbox = await starter.start(request(image=BASE))
    yield sandbox
    await sandbox.close()
    await starter.aclose()


async def test_a_pod_deleted_during_a_command_is_an_error_within_seconds(
    started: RunningPod, client: ClusterClient
) -> None:
    command = asyncio.create_task(started.exec("echo started; sleep 600", timeout_s=600))
    await asyncio.sleep(0.5)
    found = await client.get(PODS, "default", started.name)
    await client.delete(PODS, "default", started.name, uid=found.metadata.uid, grace_s=1)
    with pytest.raises(SandboxError) as caught:
        await asyncio.wait_for(command, 60)
    assert isinstance(caught.value, diagnose.PodLostError)
    assert caught.value.retryable
    with pytest.raises(SandboxError):
        await started.exec("true")


async def test_an_idle_stream_is_kept_alive_by_data(monkeypatch: pytest.MonkeyPatch) -> None:
    pings = 0
    ping = Session.ping

    async def counted(session: Session, *, timeout_s: float = 30.0) -> None:
        nonlocal pings
        await ping(session, timeout_s=timeout_s)
        pings += 1

    monkeypatch.setattr(running_pod, "KEEPALIVE_S", 0.05)
    monkeypatch.setattr(Session, "ping", counted)
    async for sandbox in running(BUSYBOX):
        result = await sandbox.exec("sleep 1; head -c 100000 /dev/zero | wc -c")
        assert result.stdout == b"100000\n"
    assert pings >= 5


async def test_an_image_without_the_workdir_fails_the_start() -> None:
    error = await failure(SMALL, request(workdir="/no/such"))
    assert "/no/such" in error.what
    assert not error.retryable


async def test_a_command_that_kills_all_there_is_ends_itself_alone(started: RunningPod) -> None:
    await started.write_file("kept", b"content")
    result = await asyncio.wait_for(started.exec("kill -9 -1; echo alone"), 20)
    assert result.stdout == b"alone\n"
    assert (await started.exec("cat kept")).stdout == b"content"


async def test_commands_do_not_end_process_1(started: RunningPod) -> None:
    signals = "HUP INT QUIT TERM STOP USR1 KILL"
    await started.exec(f"for s in {signals}; do kill -$s 1; sleep 0.1; done")
    assert (await started.exec("echo well")).stdout == b"well\n"


async def test_a_pod_at_the_end_of_its_lifetime_has_expired() -> None:
    starter = provider()
    sandbox = await starter.start(request(deadline_s=4.0))
    with pytest.raises(diagnose.SandboxExpiredError):
        await asyncio.wait_for(sandbox.exec("sleep 60"), 30)
    await sandbox.close()
    await starter.aclose()


async def test_too_much_memory_kills_the_command_or_is_reported() -> None:
    starter = provider(limited(memory="64Mi"))
    sandbox = await starter.start(request(image=BASE))
    hog = "x = bytearray(1 << 20); y = [bytes(x) for _ in range(400)]"
    try:
        # The kernel kills the whole container where it is one memory group, else the command.
        result = await sandbox.exec(["python3", "-c", hog], timeout_s=30)
    except SandboxError as error:
        assert isinstance(error, diagnose.OutOfMemoryError)  # noqa: PT017 - one of two outcomes
    else:
        assert result.exit_code == 137
        assert not result.timed_out
    await sandbox.close()
    await starter.aclose()


# --- one name, one sandbox -----------------------------------------------------------------------


async def test_the_same_sandbox_is_not_started_twice(started: RunningPod) -> None:
    assert started.name
    starter = provider()
    wanted = request()
    first = await starter.start(wanted)
    with pytest.raises(SandboxError, match="running already"):
        await starter.start(wanted)
    assert (await first.exec("echo well")).stdout == b"well\n"
    await first.close()
    await starter.aclose()


async def test_what_a_killed_run_left_is_replaced() -> None:
    killed, restarted = provider(), provider()
    wanted = request()
    old = await killed.start(wanted)
    await old.exec("touch mark")
    new = await restarted.start(wanted)
    assert new.name == old.name
    assert (await new.exec("ls")).stdout == b""
    with pytest.raises(diagnose.PodLostError):
        await old.exec("true")
    await old.close()
    assert (await new.exec("echo well")).stdout == b"well\n"
    await new.close()
    await killed.aclose()
    await restarted.aclose()


async def test_the_end_of_a_provider_deletes_what_is_open(client: ClusterClient) -> None:
    starter = provider()
    sandbox = await starter.start(request())
    await starter.aclose()

    async def gone() -> bool:
        return sandbox.name not in await pods(client)

    await until(gone, within_s=10)
    await sandbox.close()


async def test_many_start_at_once() -> None:
    starter = provider()
    sandboxes = await asyncio.gather(*(starter.start(request()) for _ in range(8)))
    results = await asyncio.gather(*(s.exec("hostname") for s in sandboxes))
    assert {r.stdout.decode().strip() for r in results} == {s.name for s in sandboxes}
    await asyncio.gather(*(s.close() for s in sandboxes))
    await starter.aclose()


# --- the namespace -------------------------------------------------------------------------------


@pytest.fixture
async def namespace(client: ClusterClient) -> AsyncIterator[str]:
    name = f"swe-rollout-test-{secrets.token_hex(4)}"
    await make_namespace(client, name)
    yield name
    await end_namespace(client, name)


async def test_a_full_quota_is_reported_as_one(client: ClusterClient, namespace: str) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    await client.transport.request("POST", path, doing="create", body=json.dumps(quota).encode())
    spec = SMALL.model_copy(update={"namespace": namespace})

    async def refused() -> bool:
        try:
            sandbox = await starter.start(request())
        except diagnose.QuotaExceededError as error:
            return "exceeded quota" in error.why
        await sandbox.close()  # the quota was not yet known to admission
        return False

    starter = provider(spec)
    await until(refused, within_s=20)
    await starter.aclose()


async def test_a_namespace_that_does_not_exist_stops_the_job() -> None:
    starter = provider(SMALL.model_copy(update={"namespace": "no-such-namespace"}))
    with pytest.raises(PrerequisiteError, match="no-such-namespace"):
        await starter.start(request())
    await starter.aclose()


async def test_the_policy_is_created_once_and_one_that_allows_traffic_is_refused(
    client: ClusterClient, namespace: str
) -> None:
    spec = SMALL.model_copy(update={"namespace": namespace})
    starter = provider(spec)
    sandbox = await starter.start(request())
    await sandbox.close()
    await starter.aclose()
    policy = await client.get(NETWORK_POLICIES, namespace, isolation.POLICY_NAME)
    assert policy.spec.denies_all
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    made = f"{path}/{isolation.POLICY_NAME}"
    await client.transport.request("DELETE", made, doing="delete")
    open_policy = {
        "metadata": {"name": isolation.POLICY_NAME},
        "spec": {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress", "Ingress"]},
    }
    body = json.dumps(open_policy).encode()
    await client.transport.request("POST", path, doing="create", body=body)
    starter = provider(spec)
    with pytest.raises(PrerequisiteError, match="allows some traffic"):
        await starter.start(request())
    await starter.aclose()


async def test_a_restricted_namespace_stops_the_job_and_the_doctor_knows(
    client: ClusterClient, namespace: str
) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await patch(client, f"/api/v1/namespaces/{namespace}", label)
    starter = provider(SMALL.model_copy(update={"namespace": namespace}))
    with pytest.raises(PrerequisiteError, match="Pod Security"):
        await starter.start(request())
    await starter.aclose()
    (security,) = [
        c for c in await doctor.check_cluster(None, namespace) if c.name == "pod security"
    ]
    assert security.level is doctor.CheckLevel.FAIL
    assert "baseline" in security.fix


async def test_the_doctor_finds_no_problem_on_the_cluster() -> None:
    checks = await doctor.check_cluster(None, "default")
    assert [c.name for c in checks] == ["api server", "permissions", "events", "pod security"]
    assert not [c for c in checks if c.level is doctor.CheckLevel.FAIL]


async def test_the_doctor_reports_a_missing_context() -> None:
    (check,) = await doctor.check_cluster("no-such-context", None)
    assert check.level is doctor.CheckLevel.FAIL
    assert "no-such-context" in check.text
    assert check.fix


async def patch(client: ClusterClient, path: str, body: object) -> None:
    transport = client.transport
    async with aiohttp.ClientSession() as session:
        response = await session.patch(
            transport.access.server + path,
            data=json.dumps(body),
            ssl=transport.access.tls or True,
            headers={
                **await transport.access.credentials.headers(),
                "Content-Type": "application/merge-patch+json",
            },
        )
        assert response.status == 200, await response.text()
