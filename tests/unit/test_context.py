"""What a job announces of the sandboxes that its episodes will request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from swe_rollout.engine.base import CacheGate
from swe_rollout.episode import run_episode
from swe_rollout.events import Event, Phase, PhaseBegan
from swe_rollout.grading.grader import Grader
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.sandbox.base import Role, SandboxProvider, SandboxRequest
from swe_rollout.spec.limits import Resume, RetrySpec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import FolderTask
from unit.agent.agent_parts import SUBMIT
from unit.journal.journal_parts import ATTEMPT, Engine, Life

FORK = cast("ForkPoint", object())
FOLDER = cast("FolderTask", object())


class Announced:
    """A back end that remembers what it was told to expect."""

    def __init__(self) -> None:
        self.requests: list[SandboxRequest] = []

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        self.requests = list(requests)


@pytest.mark.parametrize(
    ("resume", "fork", "folder"),
    [
        (Resume.EXACT, None, None),
        (Resume.BEST, None, None),
        (Resume.NEVER, None, None),
        (Resume.EXACT, FORK, None),
        (Resume.EXACT, None, FOLDER),
    ],
)
def test_waiting_sandboxes_record_their_files_where_episodes_are_resumed_from_them(
    resume: Resume,
    fork: ForkPoint | None,
    folder: FolderTask | None,
    tmp_path: Path,
) -> None:
    announced = Announced()
    context = replace(
        Life(tmp_path, Engine({0: [SUBMIT]})).context(),
        sandboxes=cast("SandboxProvider", announced),
        retry=RetrySpec(resume=resume),
        fork=fork,
    )
    attempt = replace(ATTEMPT, instance=replace(ATTEMPT.instance, folder=folder))

    context.prewarm([attempt], [replace(attempt, number=2)])

    wanted = resume is not Resume.NEVER and fork is None and folder is None
    assert [each.snapshots for each in announced.requests] == [wanted, wanted]


class Gate(CacheGate):
    """Has room for one; others wait until it is opened."""

    capacity = 1

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def enter(self, episode: EpisodeId) -> None:
        del episode
        self.entered.set()
        await self.opened.wait()


async def test_no_sandbox_starts_or_is_prepared_before_the_engine_has_room(tmp_path: Path) -> None:
    announced, gate, events = Announced(), Gate(), list[Event]()
    context = Life(tmp_path, Engine({0: [SUBMIT]})).context()
    context = replace(context, gate=gate, publish=events.append)
    playing = asyncio.create_task(run_episode(ATTEMPT, context))
    await gate.entered.wait()
    started = PhaseBegan(ATTEMPT.episode, Phase.START)
    assert started not in events
    gate.opened.set()
    assert (await playing).failure is None
    assert started in events

    context = replace(context, sandboxes=cast("SandboxProvider", announced))
    others = [replace(ATTEMPT, number=number) for number in (2, 3)]
    context.prewarm([ATTEMPT, others[0]], [others[1]])
    assert [each.attempt for each in announced.requests] == [ATTEMPT.number]
    context.prewarm([ATTEMPT], others)
    assert [each.attempt for each in announced.requests] == [ATTEMPT.number, 2, 3]


def test_an_agents_sandbox_leaves_its_grader_the_time_that_tests_may_take(tmp_path: Path) -> None:
    announced = Announced()
    life = replace(
        Life(tmp_path, Engine({0: [SUBMIT]})).context(),
        sandboxes=cast("SandboxProvider", announced),
    )
    graded = replace(life, grader=Grader(life.sandboxes, timeout_s=100.0))
    graded.prewarm([ATTEMPT], [])
    agent, grader = announced.requests
    assert (agent.role, grader.role) == (Role.AGENT, Role.GRADER)
    assert agent.grading_s == grader.deadline_s > 100.0
    replace(life, grader=None).prewarm([ATTEMPT], [])
    assert [each.grading_s for each in announced.requests] == [0.0]
