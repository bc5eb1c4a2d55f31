"""Ended pods are deleted together, and none is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kube_api import KubeApi, pod, refusal
from swe_rollout.cluster.objects import Metadata, Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox.pods import reaper as pod_reaper
from swe_rollout.sandbox.pods.reaper import PodReaper, VacatedPod
from unit.conftest import Connect
from waits import until

SELECTOR = "swe-rollout.dev/run=r1"


def server_of(**phases: str) -> KubeApi:
    """Return a server with these pods of the run."""
    more = {"labels": {"swe-rollout.dev/run": "r1"}, "namespace": "rl"}
    return KubeApi(pods=[pod(name, phase, **more) for name, phase in phases.items()])


def batches(server: KubeApi) -> list[dict[str, str]]:
    """Return the selectors of the requests that delete many pods."""
    return [call.query for call in server.called("DELETE") if not call.name]


class Seen(PodWatch):
    """A watch that sees the server's state without delay."""

    def __init__(self, server: KubeApi) -> None:
        self._server = server

    def pod(self, uid: str) -> Pod | None:
        found = self._server.pods().get(uid)
        return None if found is None else msgspec.convert(found, Pod)


@pytest.fixture
async def reaper(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(pod_reaper, "POLL_S", 0.01)
    open_reapers: list[PodReaper] = []

    async def make(server: KubeApi, *, in_use: set[str] | None = None) -> PodReaper:
        made = PodReaper(
            await connect(server.respond),
            Seen(server),
            namespace="rl",
            selector=SELECTOR,
            in_use={"another"} if in_use is None else in_use,
        )
        open_reapers.append(made)
        for each in server.pods().values():
            made.add(msgspec.convert(each, Pod))
        return made

    yield make
    for each in open_reapers:
        await each.aclose()


def many(phase: str, count: int) -> dict[str, str]:
    return {f"{phase.lower()}-{number}": phase for number in range(count)}


async def test_few_ended_pods_wait_for_others(reaper: Any) -> None:
    server = server_of(**many("Succeeded", pod_reaper.BATCH_PODS - 1))
    ours = await reaper(server)
    await asyncio.sleep(0.1)
    assert (batches(server), server.deleted) == ([], [])
    assert ours.is_closed(Pod(metadata=Metadata(uid="succeeded-0")))


async def test_many_are_deleted_by_one_request_that_spares_failed_ones(reaper: Any) -> None:
    server = server_of(**many("Succeeded", pod_reaper.BATCH_PODS))
    await reaper(server)
    await until(lambda: batches(server))
    assert batches(server) == [
        {"labelSelector": SELECTOR, "fieldSelector": "status.phase=Succeeded"}
    ]
    assert server.deleted == []


async def test_few_do_not_wait_longer_than_they_may(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "BATCH_AFTER_S", 0.05)
    server = server_of(**many("Succeeded", 2))
    await reaper(server)
    await until(lambda: batches(server))
    assert len(batches(server)) == 1


async def test_where_nothing_else_runs_pods_do_not_wait_for_others(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "IDLE_S", 0.05)
    in_use: set[str] = {"another"}
    server = server_of(**many("Succeeded", 1))
    await reaper(server, in_use=in_use)
    await asyncio.sleep(0.1)
    assert batches(server) == []
    in_use.clear()
    await until(lambda: batches(server))
    assert len(batches(server)) == 1


async def test_a_closed_pod_that_failed_or_does_not_end_is_deleted_alone(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "END_S", 3600.0)
    server = server_of(failed="Failed", stuck="Running")
    await reaper(server)
    await until(lambda: server.deleted)
    await asyncio.sleep(0.1)
    assert server.deleted == ["failed"]
    monkeypatch.setattr(pod_reaper, "END_S", 0.0)
    await until(lambda: len(server.deleted) > 1)
    assert server.deleted == ["failed", "stuck"]
    assert batches(server) == []


async def test_where_batches_are_not_allowed_each_is_deleted_alone(reaper: Any) -> None:
    server = server_of(**many("Succeeded", pod_reaper.BATCH_PODS))

    async def refused(request: web.Request) -> web.Response | None:
        is_batch = request.method == "DELETE" and request.path.endswith("/pods")
        return refusal(403, "Forbidden") if is_batch else None

    server.hook = refused
    names = sorted(server.pods())
    await reaper(server)
    await until(lambda: len(server.deleted) >= len(names))
    assert sorted(server.deleted) == names


async def test_a_batch_that_fails_keeps_no_other_pod(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "END_S", 0.0)
    server = server_of(**many("Succeeded", pod_reaper.BATCH_PODS), **many("Running", 2))

    async def refused(request: web.Request) -> web.Response | None:
        is_batch = request.method == "DELETE" and request.path.endswith("/pods")
        return refusal(409, "Conflict") if is_batch else None

    server.hook = refused
    await reaper(server)
    await until(lambda: sorted(server.deleted) == ["running-0", "running-1"])


async def test_a_run_without_pods_writes_nothing_at_its_end(reaper: Any) -> None:
    server = server_of()
    await (await reaper(server)).aclose()
    assert (batches(server), server.deleted) == ([], [])


async def test_the_end_deletes_everything_page_by_page(reaper: Any) -> None:
    server = server_of(**many("Running", 3), **many("Succeeded", 2))
    server.page, left = 2, list[int]()

    async def respond(request: web.Request) -> web.Response | None:
        if request.method == "GET":
            left.append(len(server.pods()))
        return refusal(403, "Forbidden") if request.path.endswith("running-2") else None

    server.hook = respond
    await (await reaper(server)).aclose()
    # The first request takes those that ended.
    assert (left, len(batches(server))) == ([3, 1], 1)
    assert sorted(server.pods()) == ["running-2"]


def vacated(name: str) -> VacatedPod:
    metadata = Metadata(name=name, uid=name, namespace="rl")
    return VacatedPod(Pod(metadata=metadata), f"request-{name}", b"")


async def test_a_vacated_pod_is_its_graders_alone(reaper: Any) -> None:
    server = server_of(**many("Running", 2))
    ours = await reaper(server)
    ours.add(vacated("running-0").pod, vacated=vacated("running-0"))
    assert ours.take("request-running-1") is None
    taken = ours.take("request-running-0")
    assert taken == vacated("running-0")
    assert ours.take("request-running-0") is None
    assert not ours.is_closed(taken.pod)


async def test_a_vacated_pod_whose_grader_does_not_come_is_deleted(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "GRADER_S", 0.05)
    server = server_of(**many("Running", 1))
    ours = await reaper(server)
    ours.add(vacated("running-0").pod, vacated=vacated("running-0"))
    await until(lambda: server.deleted == ["running-0"])
    await until(lambda: ours.take("request-running-0") is None)


async def test_vacated_pods_make_room_where_it_is_scarce(reaper: Any) -> None:
    server = server_of(**many("Running", 2))
    ours = await reaper(server)
    assert not await ours.release_vacated()
    ours.add(vacated("running-0").pod, vacated=vacated("running-0"))
    assert await ours.release_vacated()
    assert server.deleted == ["running-0"]
    assert ours.take("request-running-0") is None
