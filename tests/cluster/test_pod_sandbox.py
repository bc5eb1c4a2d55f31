"""Sandboxes on a real cluster: the contract, the hardening, failed starts and losses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

import pytest

from cluster.needs import BASE, BUSYBOX, CLUSTER
from cluster.pods import JOB, pods, post, provided, request, running, until
from cluster.site import kubectl
from swe_rollout.cluster import doctor
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import NETWORK_POLICIES, PODS
from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import Sandbox, SandboxRequest
from swe_rollout.sandbox.pods import diagnose, isolation, pod_spec
from swe_rollout.sandbox.pods import running as running_pod
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.testing.sandbox_contract import SandboxContract

pytestmark = CLUSTER

SMALL = pods()


def limited(**resources: str) -> PodSandbox:
    return SMALL.model_copy(update={"resources": SMALL.resources.model_copy(update=resources)})


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    asyncio.run(_until_nothing_is_left())


async def _until_nothing_is_left() -> None:
    client = await ClusterClient.connect()

    async def empty() -> bool:
        return not await left(client)

    await until(empty, within_s=30)
    await client.aclose()


async def left(client: ClusterClient) -> list[str]:
    found = await client.list(PODS, "default", labels=f"{pod_spec.JOB_LABEL}={JOB}")
    return [item.metadata.name for item in found.items]


class TestBusybox(SandboxContract):
    delivers_interrupt: ClassVar[bool] = False

    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        async with running(BUSYBOX) as sandbox:
            yield sandbox


class TestSandboxBase(SandboxContract):
    has_bash: ClassVar[bool] = True

    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        async with running(BASE) as sandbox:
            yield sandbox


# --- starts that fail, quickly and with the reason -----------------------------------------------


async def failure(spec: PodSandbox, wanted: SandboxRequest) -> SandboxError:
    """The error before `start_seconds` are over; later it would be a PodStartError."""
    async with provided(spec) as starter:
        with pytest.raises(SandboxError) as caught:
            await starter.start(wanted)
    assert caught.value.why
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("spec", "image", "kind", "words"),
    [
        (
            pods(image_pull_policy="Never"),
            "swe-rollout/no-such:1",
            diagnose.ImageUnavailableError,
            "ErrImageNeverPull",
        ),
        (SMALL, "Not A Name", diagnose.ImageUnavailableError, "InvalidImageName"),
        (limited(cpu="1000"), BUSYBOX, diagnose.UnschedulableError, "Insufficient cpu"),
        (limited(memory="much"), BUSYBOX, diagnose.PodRefusedError, ""),
    ],
)
async def test_a_start_that_can_not_succeed_fails_soon_with_its_reason(
    spec: PodSandbox, image: str, kind: type[SandboxError], words: str
) -> None:
    error = await failure(spec, request(image))
    assert isinstance(error, kind)
    assert words in error.why
    if kind is not diagnose.UnschedulableError:
        assert not error.retryable


async def test_a_start_that_takes_too_long_reports_what_it_waited_for() -> None:
    spec = limited(cpu="1000").model_copy(update={"start_seconds": 2.0})
    error = await failure(spec, request())
    assert isinstance(error, diagnose.PodStartError)
    assert "Unschedulable" in error.why


async def test_a_cancelled_start_leaves_no_pod(client: ClusterClient) -> None:
    wanted = request()
    name = pod_spec.pod_name(wanted, pod_spec.RunIdentity("", ""))

    async def there() -> bool:
        return name in await left(client)

    async def gone() -> bool:
        return name not in await left(client)

    async with provided(limited(cpu="1000")) as starter:
        task = asyncio.create_task(starter.start(wanted))
        await until(there, within_s=10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(gone, within_s=10)


# --- sandboxes that are lost ---------------------------------------------------------------------


@pytest.fixture
async def started() -> AsyncIterator[RunningPod]:
    async with running(BASE) as sandbox:
        yield sandbox


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
    async with running(BUSYBOX) as sandbox:
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
    async with running(deadline_s=4.0) as sandbox:
        with pytest.raises(diagnose.SandboxExpiredError):
            await asyncio.wait_for(sandbox.exec("sleep 60"), 30)


async def test_too_much_memory_kills_the_command_or_is_reported() -> None:
    hog = "x = bytearray(1 << 20); y = [bytes(x) for _ in range(400)]"
    async with running(BASE, limited(memory="64Mi")) as sandbox:
        try:
            # The kernel kills the whole container where it is one memory group, else the command.
            result = await sandbox.exec(["python3", "-c", hog], timeout_s=30)
        except SandboxError as error:
            assert isinstance(error, diagnose.OutOfMemoryError)  # noqa: PT017 - one of two outcomes
        else:
            assert result.exit_code == 137
            assert not result.timed_out


# --- one name, one sandbox -----------------------------------------------------------------------


async def test_the_same_sandbox_is_not_started_twice() -> None:
    async with provided(SMALL) as starter:
        wanted = request()
        first = await starter.start(wanted)
        with pytest.raises(SandboxError, match="running already"):
            await starter.start(wanted)
        assert (await first.exec("echo well")).stdout == b"well\n"


async def test_what_a_killed_run_left_is_replaced() -> None:
    async with provided(SMALL) as killed, provided(SMALL) as restarted:
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


async def test_the_end_of_a_provider_deletes_what_is_open(client: ClusterClient) -> None:
    async with provided(SMALL) as starter:
        sandbox = await starter.start(request())

    async def gone() -> bool:
        return sandbox.name not in await left(client)

    await until(gone, within_s=10)
    await sandbox.close()


async def test_many_start_at_once() -> None:
    async with provided(SMALL) as starter:
        sandboxes = await asyncio.gather(*(starter.start(request()) for _ in range(8)))
        results = await asyncio.gather(*(s.exec("hostname") for s in sandboxes))
        assert {r.stdout.decode().strip() for r in results} == {s.name for s in sandboxes}


# --- the namespace -------------------------------------------------------------------------------


async def test_a_full_quota_is_reported_as_one(client: ClusterClient, namespace: str) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    await post(client, f"/api/v1/namespaces/{namespace}/resourcequotas", quota)

    async def refused() -> bool:
        try:
            sandbox = await starter.start(request())
        except diagnose.QuotaExceededError as error:
            return "exceeded quota" in error.why
        await sandbox.close()  # the quota was not yet known to admission
        return False

    async with provided(pods(namespace)) as starter:
        await until(refused, within_s=20)


async def stopped(spec: PodSandbox, words: str) -> None:
    """Check that a start fails by something that somebody has to mend first."""
    async with provided(spec) as starter:
        with pytest.raises(PrerequisiteError, match=words):
            await starter.start(request())


async def test_a_namespace_that_does_not_exist_stops_the_job() -> None:
    await stopped(pods("no-such-namespace"), "no-such-namespace")


async def test_the_policy_is_created_once_and_one_that_allows_traffic_is_refused(
    client: ClusterClient, namespace: str
) -> None:
    async with running(spec=pods(namespace)):
        policy = await client.get(NETWORK_POLICIES, namespace, isolation.POLICY_NAME)
        assert policy.spec.denies_all
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    made = f"{path}/{isolation.POLICY_NAME}"
    await client.transport.request("DELETE", made, doing="delete")
    open_policy = {
        "metadata": {"name": isolation.POLICY_NAME},
        "spec": {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress", "Ingress"]},
    }
    await post(client, path, open_policy)
    await stopped(pods(namespace), "allows some traffic")


async def test_a_restricted_namespace_stops_the_job_and_the_doctor_knows(namespace: str) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    await asyncio.to_thread(kubectl, "label", "namespace", namespace, level)
    await stopped(pods(namespace), "Pod Security")
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
