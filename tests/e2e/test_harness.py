"""An unchanged program as the agent of an episode, in a sandbox without a network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.datasets import release_pairs
from swe_rollout.errors import ExtensionFailedError
from swe_rollout.gateway.door import Door, ProgramEnd
from swe_rollout.gateway.harness import Harness
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.trajectory import Trajectory

HARNESS = Path(__file__).with_name("mini_harness.py").read_text("utf-8")
LOOKS = {"say": "I look.", "call": {"bash": {"command": "git status --short; echo seen"}}}
DONE = {"say": "Done."}


async def played(
    folder: Path,
    command: str,
    script: list[Any],
    *,
    pod: dict[str, Any] | None = None,
    **limits: float,
) -> Trajectory:
    if pod is None and (refusal := bubblewrap.refusal()):
        pytest.skip(refusal)
    job = RolloutJob.model_validate(
        {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": "harness"},
            "spec": {
                "dataset": {"releasePairs": {"names": ["semver"]}},
                "agent": {"harness": {"command": command}},
                "policy": {"scripted": {"turns": script}},
                "limits": {"toolSeconds": 60, **limits},
                "sandbox": {"local": {}} if pod is None else {"pod": pod},
                "retry": {"attempts": 1},
                "store": {"uri": f"file://{folder}"},
            },
        }
    )
    async with job.session() as session:
        return await session.run_episode(session.instances[0])


def python(text: str) -> str:
    return f"python3 - <<'END_OF_PROGRAM'\n{text}\nEND_OF_PROGRAM\n"


async def rewarded(
    folder: Path, *, pod: dict[str, Any] | None = None, command: str = python(HARNESS)
) -> None:
    """Let the smallest harness fix a task, and check its record."""
    (task,) = await release_pairs.load(["semver"], on_progress=lambda _: None)
    fix = f"git apply <<'END_OF_PATCH'\n{task.gold_patch}\nEND_OF_PATCH\n"
    turns = [LOOKS, {"say": "I fix.", "call": {"bash": {"command": fix}}}, DONE]
    record = await played(folder, command, turns, pod=pod)
    assert record.failure is None
    assert record.stop_reason is StopReason.FINISHED
    assert record.reward is not None
    assert record.reward.value == 1.0
    assert not record.branches
    assert [call.name for turn in record.turns for call in turn.tool_calls] == ["bash", "bash"]
    assert sum(record.loss_mask) == sum(turn.completion_tokens for turn in record.turns)


async def test_a_harness_that_fixes_its_task_is_rewarded(tmp_path: Path) -> None:
    await rewarded(tmp_path)


async def test_a_harness_that_changes_nothing_has_an_empty_patch(tmp_path: Path) -> None:
    record = await played(tmp_path, python(HARNESS), [LOOKS, DONE])
    assert record.verdict is not None
    assert (record.verdict.status, record.patch) == ("empty_patch", "")


@pytest.mark.parametrize("goes_on", ["", "; sleep 1000"])
async def test_the_episode_ends_with_its_limit_whatever_the_harness_does(
    tmp_path: Path, goes_on: str
) -> None:
    command = python(HARNESS).rstrip("\n") + f"\ntrue{goes_on}"
    record = await played(tmp_path, command, [LOOKS] * 9, turns=2)
    assert (record.stop_reason, len(record.turns)) == (StopReason.TURN_LIMIT, 2)


async def test_a_harness_that_never_asks_is_a_failure_of_its_own(tmp_path: Path) -> None:
    record = await played(tmp_path, r"printf '\377no such model' >&2; exit 3", [DONE])
    assert record.reward is None
    assert record.failure is not None
    assert "code 3: \ufffdno such model" in record.failure.message


async def test_a_harness_that_breaks_its_own_door_harms_nobody(tmp_path: Path) -> None:
    breaks = python(HARNESS) + "\npkill -9 listener; " + python(HARNESS)
    record = await played(tmp_path, breaks, [LOOKS, DONE])
    assert (record.stop_reason, len(record.turns)) == (StopReason.FINISHED, 2)


ASKS_TWICE = """\
import http.client, os
connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["DOOR_PORT"]))
for number in range(2):
    connection.request("POST", f"/{number}", body=b"x" * 20_000_000)
    print(connection.getresponse().read().decode())
"""


async def test_what_has_no_answer_is_sent_to_whoever_takes_the_door_over(
    door_sandbox: Sandbox,
) -> None:
    """The first two workers die while they answer; the program never notices."""
    asked: list[str] = []
    got = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        asked.append(f"{request.path} {len(body)}")
        if len(asked) < 3:
            got.set()
            await asyncio.Event().wait()
        return web.Response(text=f"answer {request.path}")

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{any}", answer)
    async with TestServer(app) as server:
        assert server.port is not None
        for life in range(3):
            door = Door(door_sandbox, server.port, Deadline(60.0))
            await (door.take() if life else door.open(python(ASKS_TWICE), {}))
            carrying = asyncio.create_task(door.carry())
            if life < 2:
                await got.wait()
                got.clear()
                carrying.cancel()
                await asyncio.gather(carrying, return_exceptions=True)
                continue
            await carrying
        assert door.ended == ProgramEnd(0, "answer /0\nanswer /1")
    assert asked == ["/0 20000000"] * 3 + ["/1 20000000"]


async def test_what_a_harness_left_behind_may_print_for_ever(door_sandbox: Sandbox) -> None:
    door = Door(door_sandbox, 1, Deadline(60.0))
    await door.open("yes & yes & sleep 0.2; exit 7", {})
    await door.carry()
    assert door.ended is not None
    assert door.ended.code == 7


@pytest.mark.parametrize(
    ("task", "env", "why"),
    [
        ("a" * (1 << 17), {}, "the task.*131,077 bytes"),
        ("Fix it.\0", {}, "the task.*NUL"),
        ("Fix it.", {"LONG": "é" * (1 << 16)}, r"agent\.harness\.env\.LONG"),
    ],
)
def test_what_fits_no_variable_is_refused(task: str, env: dict[str, str], why: str) -> None:
    harness = Harness(command="true", env=env)
    context = cast("AgentContext", SimpleNamespace(task=(Message(MessageRole.USER, task),)))
    with pytest.raises(ExtensionFailedError) as raised:
        harness._program(context, "key")
    assert re.search(why, str(raised.value), re.DOTALL)


@pytest.fixture
async def door_sandbox() -> AsyncIterator[Sandbox]:
    if refusal := bubblewrap.refusal():
        pytest.skip(refusal)
    (task,) = await release_pairs.load(["semver"], on_progress=lambda _: None)
    provider = LocalProvider(LocalSandbox())
    episode = EpisodeId("door", task.instance_id, 0)
    request = SandboxRequest(episode, Role.AGENT, task.image, task.workdir, deadline_s=120.0)
    yield await provider.start(request)
    await provider.aclose()
