"""The contract of reward terms as tests: subclass `RewardTermContract` and provide a term.

    class TestMyTerm(RewardTermContract):
        @pytest.fixture
        def term(self):
            return my_rewards.short_patch

Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from swe_rollout.grading.rewards import NamedTerm, RewardInput, ScoreFunction
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import StopReason
from swe_rollout.types.instance import Expected, Instance
from swe_rollout.types.turn import CallStatus, FinishReason, Observation, ToolCall, Turn
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus

_PATCH = "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a - b\n+a + b\n"


class RewardTermContract:
    """The contract of a reward term. Override the fixture `term`."""

    repeatable: ClassVar[bool] = True
    """False for a term that may score the same episode differently, such as a judge model."""

    @pytest.fixture
    def term(self) -> ScoreFunction:
        """The reward term."""
        raise NotImplementedError("override the fixture `term`")

    @pytest.fixture
    def instance(self) -> Instance:
        """The task of the episodes; override it for a term that needs more of a task."""
        return Instance(
            instance_id="demo__calc-1",
            problem_statement="add() subtracts",
            image="demo/calc:1",
            gold_patch=_PATCH,
            expected=Expected(("test_add",), ("test_zero",)),
        )

    @pytest.mark.parametrize("status", VerdictStatus)
    async def test_scores_every_verdict(
        self, term: ScoreFunction, instance: Instance, status: VerdictStatus
    ) -> None:
        await _score(term, graded(instance, status))

    @pytest.mark.parametrize("stop_reason", [*StopReason, None])
    async def test_scores_every_way_to_stop(
        self, term: ScoreFunction, instance: Instance, stop_reason: StopReason | None
    ) -> None:
        given = graded(instance, VerdictStatus.UNRESOLVED)
        await _score(term, replace(given, stop_reason=stop_reason))

    async def test_scores_an_episode_without_turns_and_patch(
        self, term: ScoreFunction, instance: Instance
    ) -> None:
        given = graded(instance, VerdictStatus.EMPTY_PATCH)
        await _score(term, replace(given, patch="", turns=()))

    async def test_scores_the_same_episode_alike(
        self, term: ScoreFunction, instance: Instance
    ) -> None:
        given = graded(instance, VerdictStatus.RESOLVED)
        scores = [await _score(term, given) for _ in range(2)]
        assert scores[0] == scores[1] or not self.repeatable


def graded(instance: Instance, status: VerdictStatus) -> RewardInput:
    """Return a graded episode of two turns: one with a call, one that does not parse."""
    passed = TestStatus.PASSED if status is VerdictStatus.RESOLVED else TestStatus.FAILED
    report = TestReport({"test_add": passed}, {"test_zero": TestStatus.PASSED})
    return RewardInput(
        instance=instance,
        verdict=Verdict(status, report, log_tail=f"{passed} test_add", duration_s=1.5),
        patch=_PATCH,
        turns=(
            _turn(
                0, ToolCall(CallStatus.OK, "", "bash", {"command": "ls"}), Observation("calc.py")
            ),
            _turn(1, ToolCall(CallStatus.INVALID_JSON, "{"), Observation("expected JSON")),
        ),
        stop_reason=StopReason.SUBMITTED,
    )


def _turn(index: int, call: ToolCall, observation: Observation) -> Turn:
    return Turn(
        index=index,
        request=RequestProof(100 * (index + 1), ""),
        text="I look.",
        finish_reason=FinishReason.STOP,
        completion_tokens=20,
        cached_tokens=0,
        tool_calls=(call,),
        observations=(observation,),
    )


async def _score(term: ScoreFunction, given: RewardInput) -> float:
    return (await NamedTerm("under test", 1.0, term).score(given)).score
