"""Waiting pods on a real cluster: how they are kept, claimed once, and never left behind."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from cluster.needs import BASE, BUSYBOX, CLUSTER
from cluster.pods import (
    JOB,
    at_once,
    end_namespace,
    make_namespace,
    pods,
    post,
    provided,
    read,
    request,
    until,
)
from e2e.command import started
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS, OwnerReference, Pod
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods import diagnose, pod_spec, warm_spec
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import PodSandbox, WarmPods
from swe_rollout.testing.sandbox_contract import SandboxContract

pytestmark = CLUSTER


NAMESPACE = f"swe-rollout-warm-{secrets.token_hex(3)}"


def spec(namespace: str = NAMESPACE, **warm: Any) -> PodSandbox:
    return pods(namespace, memory="128Mi", disk="64Mi", warm=WarmPods(**{"cap": 2, **warm}))


@pytest.fixture(scope="module", autouse=True)
def _namespace() -> Iterator[None]:
    async def end(client: ClusterClient) -> None:
        await until(lambda: nothing_is_left(client))
        await end_namespace(client, NAMESPACE)

    at_once(lambda client: make_namespace(client, NAMESPACE))
    yield
    at_once(end)


async def nothing_is_left(client: ClusterClient) -> bool:
    return not await jobs_pods(client)


async def jobs_pods(client: ClusterClient) -> list[Pod]:
    """The job's pods, without those that are being deleted."""
    found = await client.list(PODS, NAMESPACE, labels=f"{pod_spec.JOB_LABEL}={JOB}")
    return [pod for pod in found.items if pod.metadata.deletion_timestamp is None]


async def waiting(client: ClusterClient) -> list[Pod]:
    """The pods that start or wait for an episode."""
    return [
        pod
        for pod in await jobs_pods(client)
        if warm_spec.WARM_LABEL in pod.metadata.labels and pod.status.phase != "Succeeded"
    ]


async def delete(client: ClusterClient, pod: Pod) -> None:
    name, uid = pod.metadata.name, pod.metadata.uid
    await client.delete(PODS, NAMESPACE, name, uid=uid, grace_s=1)


@asynccontextmanager
async def opened(
    wanted: PodSandbox, *needed: SandboxRequest, warm: int | None = None, **more: Any
) -> AsyncIterator[PodProvider]:
    """A provider that is connected, and whose waiting pods are ready for what is needed.

    `warm`: how many have to be; by default all that are needed.
    """
    async with provided(wanted, **more) as provider:
        await provider.delete_orphans([])
        if needed:
            count = len(needed) if warm is None else warm
            provider.prewarm(needed)
            await until(lambda: provider.warm >= count)
        yield provider


async def spec_of(client: ClusterClient, name: str) -> dict[str, Any]:
    """A pod with all of its fields."""
    found: dict[str, Any] = await read(client, PODS.path(NAMESPACE, name))
    return found


class TestClaimed(SandboxContract):
    """A claimed pod passes the contract like one made for the episode."""

    has_bash: ClassVar[bool] = True

    @pytest.fixture
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        wanted = request(BASE)
        async with opened(spec(cap=1), wanted) as provider:
            sandbox = await provider.start(wanted)
            assert "-w-" in sandbox.name
            yield sandbox
            await sandbox.close()


# --- a claim -------------------------------------------------------------------------------------


async def test_a_claimed_pod_is_marked_and_bounded_like_one_made_for_the_episode(
    client: ClusterClient,
) -> None:
    wanted = request(role=Role.GRADER, deadline_s=300.0)
    async with opened(spec(), request(), wanted) as provider:
        for pod in await waiting(client):
            assert pod.metadata.labels[pod_spec.ROLE_LABEL] in {"agent", "grader"}  # cut off
            assert pod_spec.EPISODE_LABEL not in pod.metadata.labels
        claimed = await spec_of(client, (await provider.start(wanted)).name)
        cold = await spec_of(client, (await provider.start(request(BASE, deadline_s=300.0))).name)
        labels = pod_spec.episode_labels(wanted)
        assert claimed["metadata"]["labels"].keys() == cold["metadata"]["labels"].keys()
        assert labels.items() <= claimed["metadata"]["labels"].items()
        assert claimed["metadata"]["annotations"][pod_spec.EPISODE_ANNOTATION] == str(
            wanted.episode
        )
        assert 300 <= claimed["spec"]["activeDeadlineSeconds"] < 400
        differ = {"containers", "activeDeadlineSeconds"}  # the images differ
        assert {k: v for k, v in claimed["spec"].items() if k not in differ} == {
            k: v for k, v in cold["spec"].items() if k not in differ
        }


async def test_of_many_claims_on_one_pod_exactly_one_is_granted(client: ClusterClient) -> None:
    owner = pod_spec.RunIdentity(run=secrets.token_hex(6), started="now")
    others = [await ClusterClient.connect() for _ in range(3)]
    for _ in range(5):
        manifest = warm_spec.warm_manifest(
            BUSYBOX, job=JOB, lifetime_s=1200, sandbox=spec(), owner=owner
        )
        pod = await client.create(PODS, NAMESPACE, manifest, strict=True)
        claims = [request() for _ in range(8)]
        patches = (
            racer.patch(
                PODS, NAMESPACE, pod.metadata.name, warm_spec.claim_patch(pod, wanted, age_s=1.0)
            )
            for wanted, racer in zip(claims, itertools.cycle([client, *others]), strict=False)
        )
        responses = await asyncio.gather(*patches, return_exceptions=True)
        refused = [each for each in responses if isinstance(each, ApiError)]
        assert (len(responses) - len(refused), {each.invalid for each in refused}) == (1, {True})
        now = await client.get(PODS, NAMESPACE, pod.metadata.name)
        assert [warm_spec.is_claimed_by(now, wanted, owner) for wanted in claims] == [
            not isinstance(response, ApiError) for response in responses
        ]
        await delete(client, pod)
    for other in others:
        await other.aclose()


async def test_many_claims_at_once_get_pods_of_their_own() -> None:
    wanted = [request() for _ in range(6)]
    async with opened(spec(cap=3), *wanted, warm=2) as provider:
        sandboxes = await asyncio.gather(*(provider.start(each) for each in wanted))
        hosts = await asyncio.gather(*(each.exec("hostname; pwd") for each in sandboxes))
        output = {result.stdout.decode() for result in hosts}
        assert output == {f"{each.name}\n/root\n" for each in sandboxes}
        assert len(output) == 6
        assert len([each for each in sandboxes if "-w-" in each.name]) >= 3


async def test_a_claim_on_a_pod_that_is_on_its_way_waits_for_it() -> None:
    async with opened(spec(cap=1)) as provider:
        wanted = request()
        provider.prewarm([wanted])
        await asyncio.sleep(0)  # the pool has started
        await asyncio.sleep(0)
        assert provider.warm == 0
        sandbox = await provider.start(wanted)
        assert "-w-" in sandbox.name


async def test_a_cancelled_claim_leaves_the_pod_to_the_next(client: ClusterClient) -> None:
    async with opened(spec(cap=1)) as provider:
        first, second = request(), request()
        provider.prewarm([first, second])
        await asyncio.sleep(0.05)
        claiming = asyncio.create_task(provider.start(first))
        await asyncio.sleep(0.05)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        assert "-w-" in (await provider.start(second)).name

        async def one_is_left() -> bool:
            return [each.status.phase for each in await jobs_pods(client)].count("Running") == 1

        await until(one_is_left)


async def test_a_missing_workdir_fails_as_without_a_pool() -> None:
    wanted = request(workdir="/no/such")
    async with opened(spec(cap=1), wanted) as provider:
        with pytest.raises(SandboxError, match="/no/such") as caught:
            await provider.start(wanted)
        assert not caught.value.retryable


async def test_a_request_that_outlives_the_pod_gets_another(client: ClusterClient) -> None:
    needed = request(deadline_s=60.0)
    async with opened(spec(cap=1, expiry_seconds=60.0), needed) as provider:
        sandbox = await provider.start(request(deadline_s=3600.0))
        assert "-w-" not in sandbox.name
        found = await spec_of(client, sandbox.name)
        assert found["spec"]["activeDeadlineSeconds"] == 3600


# --- how many wait -------------------------------------------------------------------------------


async def test_no_more_wait_than_the_bounds_say_and_the_first_needs_come_first(
    client: ClusterClient,
) -> None:
    async with opened(spec(cap=3, per_image=2)) as provider:
        provider.prewarm([*(request() for _ in range(4)), *(request(BASE) for _ in range(4))])
        most = 0

        async def full() -> bool:
            nonlocal most
            most = max(most, len(await waiting(client)))
            return provider.warm == 3

        await until(full)
        await asyncio.sleep(2.5)  # the pool polls again
        await full()
        assert most == 3
        names = Counter("base" in pod.metadata.name for pod in await waiting(client))
        assert names == {False: 2, True: 1}


async def test_a_pod_that_was_taken_is_replaced_while_one_is_needed(
    client: ClusterClient,
) -> None:
    first, second = request(), request()
    async with opened(spec(cap=1), first, second, warm=1) as provider:
        one = await provider.start(first)
        await until(lambda: provider.warm == 1)
        two = await provider.start(second)
        await asyncio.sleep(1.5)
        assert one.name != two.name
        assert (provider.warm, await waiting(client)) == (0, [])


async def test_pods_that_are_no_longer_needed_are_retired(client: ClusterClient) -> None:
    async with opened(spec(), request(), request()) as provider:
        provider.prewarm([])

        async def none_waits() -> bool:
            return not await waiting(client)

        await until(none_waits)
        assert provider.warm == 0


async def test_a_pod_that_waited_too_long_makes_place_for_another(client: ClusterClient) -> None:
    async with opened(spec(cap=1, expiry_seconds=2.0), request()):
        (old,) = await waiting(client)

        async def another() -> bool:
            young = {pod.metadata.uid for pod in await waiting(client)}
            return bool(young) and old.metadata.uid not in young

        await until(another)


# --- what goes wrong -----------------------------------------------------------------------------


async def test_a_pod_that_died_while_it_waited_is_not_given_out(client: ClusterClient) -> None:
    wanted = request()
    async with opened(spec(cap=1), wanted) as provider:
        (dead,) = await waiting(client)
        await delete(client, dead)
        sandbox = await provider.start(wanted)  # at once: the pool does not know yet
        assert sandbox.name != dead.metadata.name
        assert (await sandbox.exec("echo well")).stdout == b"well\n"


async def test_a_pod_that_died_is_replaced(client: ClusterClient) -> None:
    async with opened(spec(cap=1), request()) as provider:
        (dead,) = await waiting(client)
        await delete(client, dead)

        async def another() -> bool:
            names = {pod.metadata.name for pod in await waiting(client)}
            return provider.warm == 1 and bool(names - {dead.metadata.name})

        await until(another)


async def test_an_unavailable_image_fails_the_request_for_it(
    client: ClusterClient,
) -> None:
    wanted = spec().model_copy(update={"image_pull_policy": "Never"})
    async with opened(wanted) as provider:
        absent = request("swe-rollout/no-such:1")
        provider.prewarm([absent])
        await asyncio.sleep(3)
        assert await waiting(client) == []
        with pytest.raises(diagnose.ImageUnavailableError):
            await provider.start(absent)


async def test_waiting_pods_give_way_where_there_is_no_room(client: ClusterClient) -> None:
    namespace = f"{NAMESPACE}-full"
    await make_namespace(client, namespace)
    quota = {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    await post(client, path, quota)

    async def counted() -> bool:
        return "used" in (await read(client, f"{path}/one")).get("status", {})

    await until(counted)
    async with opened(spec(namespace, cap=1), request()) as provider:
        sandbox = await provider.start(request(BASE))
        assert (await sandbox.exec("echo well")).stdout == b"well\n"
        assert provider.warm == 0
        await sandbox.close()
    await end_namespace(client, namespace)


# --- the end -------------------------------------------------------------------------------------


async def test_the_end_of_a_provider_ends_what_waits_and_what_starts(
    client: ClusterClient,
) -> None:
    async with opened(spec(cap=3), request(), request()) as provider:
        provider.prewarm([request(), request(), request(BASE)])
        await asyncio.sleep(0.05)
    await until(lambda: nothing_is_left(client), within_s=10)


async def test_waiting_pods_are_deleted_with_the_job(client: ClusterClient) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    made = await post(client, path, {"metadata": {"name": "a-job"}})
    owner = OwnerReference("v1", "ConfigMap", "a-job", made["metadata"]["uid"])
    async with opened(spec(cap=1), request(), owner=owner) as provider:
        (pod,) = await waiting(client)
        provider.prewarm([])  # none takes its place
        await client.transport.request("DELETE", f"{path}/a-job", doing="delete")

        async def gone() -> bool:
            return pod.metadata.uid not in {each.metadata.uid for each in await jobs_pods(client)}

        await until(gone)


WORKER = """
import asyncio, sys
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.types.episode import EpisodeId

async def main(spec, job, image):
    bootstrap.ORPHAN_S = 1.0
    provider = PodProvider(PodSandbox.model_validate_json(spec), job=job)
    await provider.delete_orphans([])
    episode = EpisodeId(job, "killed", 0)
    provider.prewarm([SandboxRequest(episode, Role.AGENT, image, "/root")])
    while provider.warm == 0:
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_pods_of_a_killed_worker_end_by_themselves_and_are_deleted(
    client: ClusterClient,
) -> None:
    command = [sys.executable, "-c", WORKER, spec(cap=1).model_dump_json(), JOB, BUSYBOX]
    with started(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        async with asyncio.timeout(60):
            while "ready" not in (line := await asyncio.to_thread(worker.stdout.readline)):
                assert line, "the worker ended"
        (left,) = await waiting(client)

    async def ended() -> bool:
        return (await client.get(PODS, NAMESPACE, left.metadata.name)).status.phase == "Succeeded"

    await until(ended)
    async with opened(spec()):
        await until(lambda: nothing_is_left(client), within_s=10)
