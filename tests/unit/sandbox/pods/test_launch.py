"""Creating a pod when responses are lost and names taken; waiting while problems come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from kube_api import pod
from ratios import ratio
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.pods import diagnose
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL
from swe_rollout.spec.sandbox import PodSandbox
from unit.sandbox.pods.conftest import READY, UNMOUNTED, UNSCHEDULABLE, PodServer, pulling
from waits import until


def uids(server: PodServer) -> list[str]:
    """Return the uids whose deletion was asked for."""
    return [call.body["preconditions"]["uid"] for call in server.called("DELETE")]


async def test_a_creation_whose_response_was_lost_is_not_made_twice(launch: Any) -> None:
    server = PodServer([(0, READY)])
    server.lost["POST"] = 1
    made = await (await launch(server)).run(start_s=60)
    assert made.metadata.uid == "u1"
    assert len(server.called("POST")) == 2
    assert uids(server) == []


async def test_a_closed_pod_of_the_same_name_is_not_taken_for_a_new_one(
    launch: Any, closed: set[str]
) -> None:
    # Its status still says that it runs: the kubelet reports its end a moment later.
    server = PodServer([(0, READY)])
    ours = await launch(server)
    await ours.run(start_s=60)
    closed.add("u1")
    assert (await ours.run(start_s=60)).metadata.uid == "u2"
    assert uids(server) == ["u1"]


async def test_a_pod_that_was_attached_to_is_not_taken_for_a_new_one(launch: Any) -> None:
    """A new pod's first stream brings it a key, which commands of an earlier one could read."""
    server = PodServer([(0, READY)])
    ours = await launch(server)
    await ours.run(start_s=5)
    ours.runtime.attached.add("u1")
    await ours.undo()
    assert uids(server) == []
    assert (await ours.run(start_s=5)).metadata.uid == "u2"
    assert uids(server) == ["u1"]


async def test_undoing_deletes_our_own_pod_and_no_other(launch: Any) -> None:
    server = PodServer([(0, READY)])
    ours = await launch(server)
    await ours.run(start_s=60)
    await ours.undo()
    assert uids(server) == ["u1"]
    another = await ours.run(start_s=60)
    server.pods()[another.metadata.name]["metadata"]["labels"][RUN_LABEL] = "another"
    await ours.undo()
    assert uids(server) == ["u1"]


async def test_a_name_that_is_repeatedly_taken_is_an_error(launch: Any) -> None:
    server = PodServer([(0, READY)])

    async def rival(request: web.Request) -> None:
        if request.method == "POST":
            name = (await request.json())["metadata"]["name"]
            server.objects["pods", "default", name] = pod(name, uid="rival")

    server.hook = rival
    with pytest.raises(SandboxError, match="repeatedly taken"):
        await (await launch(server)).run(start_s=60)
    assert len(server.called("POST")) == 3
    assert uids(server) == ["rival"] * 3


async def test_a_problem_that_passes_is_ignored(
    launch: Any, warnings: list[SandboxError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_PULL_S", 60.0)
    server = PodServer([(0.05, pulling("i/o timeout")), (0, READY)])
    assert (await (await launch(server)).run(start_s=60)).metadata.uid == "u1"
    assert warnings == []


async def test_a_lasting_problem_is_warned_of_before_it_is_raised(
    launch: Any, warnings: list[SandboxError]
) -> None:
    server = PodServer([(3, pulling("i/o timeout")), (0, READY)])
    assert (await (await launch(server)).run(start_s=60)).metadata.uid == "u1"
    (warning,) = warnings
    assert isinstance(warning, diagnose.ImageUnavailableError)
    assert "i/o timeout" in warning.why


async def test_a_problem_that_persists_is_raised_with_events(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_PULL_S", 0.2)
    server = PodServer([(0.15, pulling("i/o timeout")), (0, pulling("i/o timeout again"))])
    server.report("Warning", "NodePressure", "disk is full")
    with pytest.raises(diagnose.ImageUnavailableError, match="disk is full"):
        await (await launch(server)).run(start_s=60)


CLAIMED = PodSandbox(bundle_claims={"/opt/harness": "swe-rollout-bundle-codex-1"})


async def test_a_pod_waits_for_its_nodes_copy_and_says_so(
    launch: Any, warnings: list[SandboxError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_BUNDLE_WARN_S", 0.1)
    server = PodServer([(0, UNMOUNTED)])
    server.report("Warning", "FailedMount", "hostPath type check failed: no such directory")
    starting = asyncio.create_task((await launch(server, CLAIMED)).run(start_s=60))
    await until(lambda: warnings)
    (waiting,) = server.pods().values()
    waiting["status"] = READY
    server.tell(waiting)
    assert (await starting).metadata.uid == "u1"
    assert isinstance(warnings[0], diagnose.BundleMissingError)
    assert "hostPath type check failed" in warnings[0].why


async def test_a_copy_that_never_comes_is_named(launch: Any) -> None:
    server = PodServer([(0, UNMOUNTED)])
    with pytest.raises(diagnose.BundleMissingError, match="waits for its node's copy"):
        await (await launch(server, CLAIMED)).run(start_s=0.2)
    with pytest.raises(diagnose.PodStartError, match="was not ready") as other:
        await (await launch(PodServer([(0, UNMOUNTED)]))).run(start_s=0.2)
    assert not isinstance(other.value, diagnose.BundleMissingError)


async def test_a_reason_is_told_when_it_has_settled_and_no_later(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it has to persist, and what a pod takes that starts; not three times that."""
    settle_s = 0.5
    monkeypatch.setattr(diagnose, "_PULL_S", settle_s)

    async def started() -> None:
        await asyncio.sleep(settle_s)
        await (await launch(PodServer([(0, READY)]))).run(start_s=60)

    async def told() -> None:
        with pytest.raises(diagnose.ImageUnavailableError):
            await (await launch(PodServer([(0, pulling("no such image"))]))).run(start_s=60)

    assert await ratio(told, started) < 2


async def test_a_pod_for_which_a_node_is_being_added_is_waited_for(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_SCHEDULE_S", 0.1)
    monkeypatch.setattr("swe_rollout.sandbox.pods.launch._SCALING_S", 0.1)
    server = PodServer([(60, UNSCHEDULABLE), (0, READY)])
    with pytest.raises(diagnose.UnschedulableError):
        await (await launch(server)).run(start_s=60)
    server = PodServer([(0.5, UNSCHEDULABLE), (0, READY)])
    server.report("Normal", "TriggeredScaleUp", "1 to 2")
    assert (await (await launch(server)).run(start_s=60)).metadata.uid == "u1"
    server = PodServer([(60, {"phase": "Failed", "reason": "OutOfcpu"})])
    server.report("Normal", "TriggeredScaleUp", "1 to 2")
    with pytest.raises(diagnose.UnschedulableError):
        await (await launch(server)).run(start_s=60)


async def test_a_change_seen_before_the_creations_response_is_not_lost(
    launch: Any,
) -> None:
    server = PodServer([(60.0, READY)])
    server.response_s = 0.5

    assert diagnose.is_ready(await (await launch(server)).run(start_s=30.0))
