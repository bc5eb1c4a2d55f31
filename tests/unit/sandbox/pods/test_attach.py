"""Attaching to a pod of a process that died: which pods are refused, and what becomes of them."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from kube_api import KubeApi, pod, refusal
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import SandboxMark
from swe_rollout.sandbox.pods import attach as module
from swe_rollout.sandbox.pods.attach import PodAttachment
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL, RunIdentity, pod_manifest
from swe_rollout.sandbox.pods.reaper import PodReaper
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod
from swe_rollout.sandbox.session.channel import StreamLostError
from swe_rollout.sandbox.session.frames import SupervisorState
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.spec.sandbox import PodSandbox
from unit.conftest import Connect
from unit.sandbox.pods.conftest import READY, REQUEST, UNSCHEDULABLE

OWNER = RunIdentity("run", "now")
SELECTOR = f"{RUN_LABEL}=run"
_OPEN = PodAttachment._session
Change = Callable[[dict[str, Any]], object]


@dataclass
class Living:
    """A session with a supervisor that says what it has done."""

    states: list[SupervisorState | None]
    """One after the other; the last one again."""
    closed: bool = False
    followed: list[int] = field(default_factory=list)
    workdir: str = "/"

    def __getattr__(self, name: str) -> object:
        """Whatever a pod hands on."""
        return name

    async def state(self) -> SupervisorState | None:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def follow(self, number: int) -> None:
        self.followed.append(number)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def api() -> KubeApi:
    """A server with one pod of another run."""
    made = pod_manifest(REQUEST, PodSandbox(), RunIdentity("dead", "before"))["metadata"]
    return KubeApi(pods=[{**pod(**made, uid="u1"), "status": copy.deepcopy(READY)}])


def only(api: KubeApi) -> dict[str, Any]:
    (found,) = api.pods().values()
    return found


@pytest.fixture
def session() -> Living:
    return Living([SupervisorState(4, 0)])


@pytest.fixture
async def attachment(
    connect: Connect, api: KubeApi, session: Living, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PodAttachment]:
    async def opened(_: PodAttachment, pod: object) -> Living:
        del pod
        return session

    monkeypatch.setattr(PodAttachment, "_session", opened)
    client = await connect(api.respond)
    watch = PodWatch(client, namespace="default", selector=SELECTOR)
    await watch.start()
    reaper = PodReaper(client, watch, namespace="default", selector=SELECTOR, in_use=())
    runtime = PodRuntime(client, watch, reaper, "default", set())
    mark = SandboxMark(only(api)["metadata"]["name"], "u1", 4)
    request = replace(REQUEST, snapshots=True)
    yield PodAttachment(runtime, OWNER, request, mark, SessionLife(bytes(32), 1))
    for each in tuple(runtime.running):
        await each.close()
    await reaper.aclose()
    await watch.aclose()


async def test_a_sandbox_as_it_was_becomes_one_of_this_run(
    attachment: PodAttachment, api: KubeApi, session: Living
) -> None:
    found = await attachment.run(delta=3)
    assert isinstance(found, RunningPod)
    assert found.name == attachment.mark.name
    assert only(api)["metadata"]["labels"][RUN_LABEL] == "run"
    assert (session.followed, session.closed, api.deleted) == ([3], False, [])
    assert attachment.runtime.attached == {"u1"}


async def test_what_still_runs_is_waited_for(attachment: PodAttachment, session: Living) -> None:
    """A command that was given up, whose end the journal has."""
    session.states = [SupervisorState(4, 1), SupervisorState(4, 1), SupervisorState(4, 0)]
    assert await attachment.run(delta=1) is not None


@pytest.mark.parametrize("state", [SupervisorState(5, 0), SupervisorState(3, 0), None])
async def test_a_sandbox_in_which_more_was_done_is_ended(
    attachment: PodAttachment, api: KubeApi, session: Living, state: SupervisorState | None
) -> None:
    session.states = [state]
    assert await attachment.run(delta=1) is None
    assert (session.closed, len(api.deleted)) == (True, 1)
    # Its name is free only when it is gone: never is it taken for a pod that this run created.
    assert attachment.runtime.attached == {"u1"}
    assert attachment.runtime.running == set()


async def test_a_supervisor_that_does_not_answer_costs_a_bounded_time(
    attachment: PodAttachment, api: KubeApi, session: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTACH_S", 0.1)
    session.states = [SupervisorState(4, 1)]
    assert await attachment.run(delta=1) is None
    assert (session.closed, len(api.deleted)) == (True, 1)


async def test_a_stream_after_one_that_was_lost_has_another_number(
    attachment: PodAttachment, session: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    async def opened(*_: object, life: SessionLife, **__: object) -> Living:
        tried.append(life.tried)
        if len(tried) < 3:
            raise StreamLostError("the greeting was lost")
        return session

    monkeypatch.setattr(module, "_POLL_S", 0.0)
    monkeypatch.setattr(module, "open_session", opened)
    monkeypatch.setattr(PodAttachment, "_session", _OPEN)
    assert await attachment.run(delta=1) is not None
    assert tried == [0, 1, 2]


async def test_a_stream_that_can_not_be_opened_ends_the_pod(
    attachment: PodAttachment, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: PodAttachment, pod: object) -> Living:
        del pod
        raise SandboxError("no stream")

    monkeypatch.setattr(PodAttachment, "_session", refused)
    assert await attachment.run(delta=1) is None
    assert len(api.deleted) == 1


def label(name: str, value: str) -> Change:
    """Set a label."""
    return lambda pod: pod["metadata"]["labels"].update({f"swe-rollout.dev/{name}": value})


@pytest.mark.parametrize(
    "change",
    [
        dict.clear,
        lambda pod: pod["metadata"].update(uid="u2"),
        lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        lambda pod: pod.update(status={"phase": "Succeeded"}),
        lambda pod: pod.update(status=UNSCHEDULABLE),
        label("run", "run"),
        label("job", "another"),
        label("episode", "another"),
        label("role", "grader"),
        label("attempt", "2"),
    ],
    ids=["gone", "uid", "deleted", "ended", "pending", "run", "job", "episode", "role", "attempt"],
)
async def test_any_other_pod_is_left_alone(
    attachment: PodAttachment, api: KubeApi, session: Living, change: Change
) -> None:
    change(only(api))
    if not only(api):
        api.objects.clear()
    assert await attachment.run(delta=1) is None
    assert (api.calls, session.closed) == ([], False)


async def test_of_two_processes_one_attaches(attachment: PodAttachment, api: KubeApi) -> None:
    """The patch names the run that had it; the API server refuses the second one."""

    async def refused(request: web.Request) -> web.Response | None:
        return refusal(422) if request.method == "PATCH" else None

    api.hook = refused
    assert await attachment.run(delta=1) is None
    assert api.deleted == []
