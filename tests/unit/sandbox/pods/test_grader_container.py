"""When the grader's container may be used: after the agent's has ended, and only as it was.

The supervisors are real, on this machine, and nothing is cleared here; the API server is scripted.
The attacks are in the cluster tier.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.cut_channel import CutStreamOpener
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import Pod
from swe_rollout.sandbox.base import Role
from swe_rollout.sandbox.pods import grader_container, running
from swe_rollout.sandbox.pods.pod_spec import GRADER_CONTAINER
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import PodSandbox
from unit.conftest import Connect
from unit.sandbox.pods.conftest import REQUEST, PodServer

AGENT = replace(REQUEST, grading_s=60.0)
GRADER = replace(REQUEST, role=Role.GRADER)


def status(agent: dict[str, Any], grader: dict[str, Any]) -> dict[str, Any]:
    both = {"sandbox": agent, "sandbox-grader": grader}
    return {
        "phase": "Running",
        "containerStatuses": [
            {"name": name, "ready": "running" in state, "state": state}
            for name, state in both.items()
        ],
    }


RUNNING = status({"running": {}}, {"running": {}})
VACATED = status({"terminated": {"exitCode": 0}}, {"running": {}})
OVER = status({"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 1}})
"""As nobody used the grader's container in time."""


class Scene:
    """A provider, its server, and what its containers hold."""

    def __init__(self, server: PodServer, tmp_path: Path) -> None:
        self.server = server
        self.hosts = tmp_path / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n", "utf-8")
        self.opened: list[str] = []
        """The container of each session."""
        self.left = ""
        """What can't be cleared."""

    def report(self, status: dict[str, Any]) -> None:
        """Let the kubelet report a status of the only pod."""
        (pod,) = self.server.pods().values()
        pod["status"] = status
        self.server.tell(pod)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(PodServer([(0, RUNNING)]), tmp_path)

    async def open_session(
        pod: Pod, runtime: PodRuntime, *, workdir: str, container: str = "sandbox"
    ) -> Session:
        del runtime
        made.opened.append(container)
        folder = tmp_path / f"{pod.metadata.name}-{len(made.opened)}"
        folder.mkdir()
        opener = CutStreamOpener(folder)
        return await Session.open(await opener.start(), workdir=workdir, opener=opener)

    # Never the real script: it clears what this machine shares.
    monkeypatch.setattr(grader_container, "read_script", lambda _: f"echo '{made.left}'")
    monkeypatch.setattr(grader_container, "open_session", open_session)
    monkeypatch.setattr("swe_rollout.sandbox.pods.launch.open_session", open_session)
    monkeypatch.setattr(running, "_SHARED_FILES", (str(made.hosts),))
    return made


@pytest.fixture
async def pods(
    connect: Connect, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PodProvider]:
    async def connected(context: str | None) -> Any:
        del context
        return await connect(scene.server.respond)

    monkeypatch.setattr(ClusterClient, "connect", connected)
    opened = PodProvider(PodSandbox(namespace="default", start_seconds=5), job="job")
    yield opened
    await opened.aclose()


async def vacate(pods: PodProvider) -> RunningPod:
    agent = await pods.start(AGENT)
    await agent.close()
    return agent


async def test_grading_follows_once_the_agents_container_has_ended(
    pods: PodProvider, scene: Scene
) -> None:
    agent = await vacate(pods)
    starting = asyncio.create_task(pods.start(GRADER))
    for _ in range(20):
        await asyncio.sleep(0)  # Opening a session takes fewer steps.
    assert scene.opened == ["sandbox"], "untouched while the agent's container runs"
    scene.report(VACATED)
    grader = await starting
    assert scene.opened == ["sandbox", GRADER_CONTAINER]
    assert grader.name == agent.name
    assert (await grader.exec("echo well")).stdout == b"well\n"
    await grader.close()


async def test_a_blind_run_never_follows_in_a_pod_that_was_used(
    pods: PodProvider, scene: Scene
) -> None:
    agent = await vacate(pods)
    scene.report(VACATED)
    blind = await pods.start(replace(GRADER, part=9))
    assert blind.name != agent.name
    await blind.close()


async def in_a_pod_of_its_own(pods: PodProvider, agent: RunningPod) -> None:
    grader = await pods.start(GRADER)
    assert grader.name != agent.name
    assert (await grader.exec("echo well")).stdout == b"well\n"
    await grader.close()


async def test_what_cannot_be_cleared_leaves_the_container_unused(
    pods: PodProvider, scene: Scene
) -> None:
    scene.left = "/proc/sysvipc/shm 7"
    agent = await vacate(pods)
    scene.report(VACATED)
    await in_a_pod_of_its_own(pods, agent)


async def test_a_changed_file_of_the_pod_leaves_the_container_unused(
    pods: PodProvider, scene: Scene
) -> None:
    agent = await pods.start(AGENT)
    scene.hosts.write_text("10.0.0.1 pypi.org\n", "utf-8")
    await agent.close()
    scene.report(VACATED)
    await in_a_pod_of_its_own(pods, agent)


async def test_a_container_that_ended_while_it_waited_is_replaced(
    pods: PodProvider, scene: Scene
) -> None:
    agent = await vacate(pods)
    scene.report(OVER)
    await in_a_pod_of_its_own(pods, agent)


async def test_a_pod_is_taken_over_once(pods: PodProvider, scene: Scene) -> None:
    agent = await vacate(pods)
    scene.report(VACATED)
    first = await pods.start(GRADER)
    assert first.name == agent.name
    await first.close()
    await in_a_pod_of_its_own(pods, agent)


async def test_an_agent_that_starts_again_does_not_get_the_pod_in_which_grading_runs(
    pods: PodProvider, scene: Scene
) -> None:
    agent = await vacate(pods)
    scene.report(VACATED)
    grader = await pods.start(GRADER)
    again = await pods.start(AGENT)
    assert again.pod.metadata.uid != agent.pod.metadata.uid
    await grader.close()
    await again.close()
