"""The end of an episode: what a graded one earns, and what is left of one whose reward broke."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from swe_rollout import episode
from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import Boundary
from swe_rollout.events import Events
from swe_rollout.grading.rewards import RewardInput, Rewards
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.grading import RewardUse
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm, TestReport, Verdict, VerdictStatus

TASK = Instance(instance_id="one", problem_statement="fix it", image="image:1")
VERDICT = Verdict(VerdictStatus.RESOLVED, TestReport({}, {}))


async def played(
    monkeypatch: pytest.MonkeyPatch, rewards: Rewards, verdict: Verdict | None = VERDICT
) -> Trajectory:
    """An episode whose agent and grader are played, scored by real terms."""

    async def act(*_: object) -> Patch:
        return Patch("+1\n")

    async def grade(*_: object) -> Verdict | None:
        return verdict

    monkeypatch.setattr(episode, "_play", act)
    context: Any = SimpleNamespace(
        grade=grade,
        rewards=rewards,
        publish=Events(),
        policy=lambda _: "played",
        sampling_for=lambda _: SimpleNamespace(seed=0),
        agent=SimpleNamespace(renderer=SimpleNamespace(path=None)),
        spec_digest="0",
        extensions=(),
        reported=set(),
        fork=None,
    )
    attempt = Attempt(EpisodeId("demo", "one", 0), TASK, 1)
    return await episode.run_episode(attempt, cast("JobContext", context))


async def test_a_graded_episode_earns_the_sum_of_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = (RewardUse(use="resolved"), RewardUse(use=f"{__name__}:lines", weight=0.5))
    record = await played(monkeypatch, Rewards(terms))
    assert record.reward == Reward(
        (RewardTerm("resolved", 1.0), RewardTerm(f"{__name__}:lines", 1.0, 0.5))
    )
    assert record.failure is None


async def test_an_episode_without_a_verdict_earns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    record = await played(monkeypatch, Rewards(), verdict=None)
    assert (record.verdict, record.reward, record.failure) == (None, None, None)


async def test_a_term_that_breaks_leaves_a_failure_and_no_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = await played(monkeypatch, Rewards((RewardUse(use=f"{__name__}:broken"),)))
    assert record.masked
    assert record.reward is None
    assert record.verdict == VERDICT, "what the tests have shown is not lost"
    assert record.failure is not None
    assert record.failure.boundary is Boundary.EXTENSION
    assert not record.failure.retryable
    assert record.failure.trace.startswith('  File "unit/test_episode.py", line ')
    assert "broken failed: ZeroDivisionError" in record.failure.message


def lines(given: RewardInput) -> int:
    return len(given.patch.splitlines())


def broken(given: RewardInput) -> float:
    return 1 / len(given.turns)
