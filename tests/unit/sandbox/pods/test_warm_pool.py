"""Claims whose responses are lost, refused or never come; how the pool paces itself.

The supervisors are real, on this machine; the API server is scripted. The real one is in the
cluster tier.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from contract.cut_channel import CutStreamOpener
from kube_api import refusal
from swe_rollout.cluster.objects import Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import warm_pool
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL, RunIdentity, episode_labels
from swe_rollout.sandbox.pods.reaper import PodReaper
from swe_rollout.sandbox.pods.running import PodRuntime
from swe_rollout.sandbox.pods.warm_pool import WarmPool
from swe_rollout.sandbox.pods.warm_spec import WARM_LABEL
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import PodSandbox, WarmPods
from swe_rollout.types.episode import EpisodeId
from unit.conftest import Connect
from unit.sandbox.pods.conftest import READY, PodServer
from waits import PATIENCE_S, until


def request(sample: int = 0, **changes: Any) -> SandboxRequest:
    wanted = SandboxRequest(EpisodeId("job", "one", sample), Role.AGENT, "image:1", "/")
    return replace(wanted, **changes)


@pytest.fixture
def server() -> PodServer:
    """Its pods are ready as soon as they are made."""
    return PodServer([(0, READY)])


def refuse(server: PodServer, method: str, code: int) -> None:
    async def refused(request: web.Request) -> web.Response | None:
        return refusal(code) if request.method == method else None

    server.hook = refused


@pytest.fixture
async def pool(
    connect: Connect, server: PodServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WarmPool]:
    async def open_session(pod: Pod, runtime: PodRuntime, *, workdir: str) -> Session:
        del runtime
        folder = tmp_path / pod.metadata.name
        folder.mkdir()
        opener = CutStreamOpener(folder)
        channel = await opener.start()
        trees = {"/": str(folder)}
        return await Session.open(channel, workdir=workdir, opener=opener, trees=trees)

    monkeypatch.setattr("swe_rollout.sandbox.pods.launch.open_session", open_session)
    monkeypatch.setattr(warm_pool, "POLL_S", 0.02)
    monkeypatch.setattr(warm_pool, "COOLDOWN_S", 0.2)
    client = await connect(server.respond)
    watch = PodWatch(client, namespace="default", selector=f"{RUN_LABEL}=run")
    await watch.start()
    names: set[str] = set()
    reaper = PodReaper(client, watch, namespace="default", selector="a=b", in_use=names)
    runtime = PodRuntime(client, watch, reaper, "default", names)
    spec = PodSandbox(warm=WarmPods(cap=2, expiry_seconds=60), start_seconds=5)
    pool = WarmPool(runtime, spec, job="job", owner=RunIdentity("run", "now"))
    yield pool
    await pool.aclose()
    await asyncio.gather(*(each.close() for each in list(runtime.running)))
    await reaper.aclose()
    await watch.aclose()


async def one_waits(pool: WarmPool) -> None:
    pool.prewarm([request()])
    await until(lambda: pool.ready == 1)


async def test_a_claim_whose_response_was_lost_is_recognised_as_our_own(
    pool: WarmPool, server: PodServer
) -> None:
    await one_waits(pool)
    server.lost["PATCH"] = 1
    pod = await pool.claim(request())
    assert pod is not None
    assert (await pod.exec("echo well")).stdout == b"well\n"
    assert len(server.called("PATCH")) == 2
    await pod.close()


async def test_a_pod_that_waits_records_its_files_if_that_is_expected(pool: WarmPool) -> None:
    pool.prewarm([request(0, snapshots=True)])
    await until(lambda: pool.ready == 1)
    pod = await pool.claim(request(0, snapshots=True))
    assert pod is not None
    assert (await pod.changes()).number == 1
    await pod.close()


async def test_a_pod_that_another_claimer_has_labelled_is_not_handed_out(
    pool: WarmPool, server: PodServer
) -> None:
    await one_waits(pool)

    async def taken(got: web.Request) -> None:
        if got.method == "PATCH":
            (labels,) = (each["metadata"]["labels"] for each in server.pods().values())
            labels.pop(WARM_LABEL)
            labels.update(episode_labels(request(7)))

    server.hook = taken
    assert await pool.claim(request()) is None
    assert pool.ready == 0


async def test_a_claim_without_a_response_does_not_delay_an_episode(
    pool: WarmPool, server: PodServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_waits(pool)
    monkeypatch.setattr(warm_pool, "CLAIM_S", 0.3)

    async def silent(got: web.Request) -> None:
        if got.method == "PATCH":
            await asyncio.Event().wait()

    server.hook = silent
    async with asyncio.timeout(PATIENCE_S):
        assert await pool.claim(request()) is None


async def test_where_pods_may_not_be_patched_no_more_are_prewarmed(
    pool: WarmPool, server: PodServer
) -> None:
    await one_waits(pool)
    refuse(server, "PATCH", 403)
    assert await pool.claim(request()) is None
    pool.prewarm([request(1), request(2)])
    await asyncio.sleep(0.5)  # more than a pause
    assert (server.made, pool.ready) == (1, 0)


async def test_after_a_failed_start_the_pool_pauses_and_then_continues(
    pool: WarmPool, server: PodServer
) -> None:
    refuse(server, "POST", 403)
    pool.prewarm([request()])
    await asyncio.sleep(0.1)
    server.hook = None
    assert pool.ready == 0
    await until(lambda: pool.ready == 1)


async def test_a_request_that_was_made_is_not_expected_again(
    pool: WarmPool, server: PodServer
) -> None:
    await one_waits(pool)
    pod = await pool.claim(request())
    assert pod is not None
    pool.prewarm([request(), request(role=Role.GRADER)])
    await until(lambda: pool.ready == 1)
    await asyncio.sleep(0.1)
    assert (pool.ready, server.made) == (1, 2)
    await pod.close()


async def test_a_request_that_moves_to_the_end_of_the_list_keeps_its_pod(
    pool: WarmPool, server: PodServer
) -> None:
    pool.prewarm([request(0), request(1)])
    await until(lambda: pool.ready == 2)
    pool.prewarm([request(2, image="image:2"), request(0), request(1)])
    await asyncio.sleep(0.2)
    assert (pool.ready, server.made) == (2, 2)


async def test_released_capacity_is_not_taken_back_for_a_while(
    pool: WarmPool, server: PodServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_waits(pool)
    monkeypatch.setattr(warm_pool, "COOLDOWN_S", 2.0)
    assert await pool.release_all()
    assert pool.ready == 0
    assert not await pool.release_all()
    assert server.made == 1
    await until(lambda: pool.ready == 1)


async def test_a_pod_that_comes_up_while_capacity_is_released_is_ended(
    pool: WarmPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_waits(pool)
    up, (found,) = asyncio.Event(), pool._ready.copy()

    async def bring_up(_: object) -> object:
        await up.wait()
        return found

    pool._ready.clear()
    monkeypatch.setattr(pool, "_bring_up", bring_up)
    pool._start("image:1")
    await asyncio.sleep(0)
    up.set()
    assert await asyncio.create_task(pool.release_all())
    assert found.pod not in pool._runtime.running


async def test_two_claims_in_one_process_never_get_one_pod(pool: WarmPool) -> None:
    await one_waits(pool)
    claimed = await asyncio.gather(*(pool.claim(request(sample)) for sample in range(3)))
    (pod,) = [each for each in claimed if each is not None]
    await pod.close()
