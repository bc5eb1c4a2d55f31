"""Rewards: the sum of terms, and no reward at all where one of them breaks."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from swe_rollout.errors import Boundary, ExtensionFailedError, GraderError, SandboxError
from swe_rollout.extension import ExtensionError
from swe_rollout.grading.rewards import NamedTerm, RewardInput, Rewards, ScoreFunction, resolved
from swe_rollout.spec.grading import RewardUse
from swe_rollout.testing.extensions.reward_terms import RewardTermContract, graded
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import Reward, RewardTerm, VerdictStatus

TASK = Instance(instance_id="one", problem_statement="fix it", image="image:1")
GIVEN = graded(TASK, VerdictStatus.RESOLVED)


class TestResolved(RewardTermContract):
    @pytest.fixture
    def term(self) -> ScoreFunction:
        return resolved


async def judge(given: RewardInput, scale: float = 1.0) -> float:
    await asyncio.sleep(0)
    return scale * len(given.tool_calls)


def down(_: RewardInput) -> float:
    raise SandboxError("the judge is away")


@pytest.mark.parametrize("status", VerdictStatus)
async def test_by_default_the_tests_alone_decide(status: VerdictStatus) -> None:
    expected = 1.0 if status is VerdictStatus.RESOLVED else 0.0
    reward = await Rewards().score(graded(TASK, status))
    assert reward == Reward((RewardTerm("resolved", expected, 1.0),))


async def test_the_reward_is_the_weighted_sum_of_its_terms() -> None:
    terms = (
        RewardUse(use="resolved"),
        RewardUse.model_validate(
            {"use": f"{__name__}:judge", "with": {"scale": 0.5}, "weight": -0.1}
        ),
    )
    reward = await Rewards(terms).score(GIVEN)
    assert reward.terms[1] == RewardTerm(f"{__name__}:judge", 1.0, -0.1)
    assert reward.value == pytest.approx(0.9)


def test_terms_see_calls_and_tokens() -> None:
    assert [call.name for call in GIVEN.tool_calls] == ["bash", ""]
    assert GIVEN.sampled_tokens == 40


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: float("nan"), "expected a finite number; found nan"),
        (lambda _: float("inf"), "expected a finite number; found inf"),
        (lambda _: None, "expected a finite number; found None"),
        (lambda _: "1", "expected a finite number; found '1'"),
    ],
)
async def test_a_term_that_breaks_is_a_failure_of_grading_with_its_name(
    function: object, why: str
) -> None:
    term = NamedTerm("mine:term", 1.0, cast("ScoreFunction", function))
    with pytest.raises(ExtensionFailedError, match="the reward term mine:term failed") as caught:
        await term.score(GIVEN)
    assert why in caught.value.why
    assert caught.value.boundary is Boundary.EXTENSION
    assert not caught.value.retryable


async def test_a_term_may_say_who_owns_its_failure() -> None:
    with pytest.raises(SandboxError, match="the judge is away"):
        await Rewards((RewardUse(use=f"{__name__}:down"),)).score(GIVEN)


async def test_a_sum_that_is_not_finite_is_no_reward() -> None:
    terms = (RewardUse(use=f"{__name__}:huge", weight=1e6),)
    with pytest.raises(GraderError, match="huge failed: their sum is not finite"):
        await Rewards(terms).score(GIVEN)


def huge(_: RewardInput) -> float:
    return 1e308


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("resolve", "did you mean resolved"),
        (f"{__name__}:huge.x", "does not exist"),
        (f"{__name__}:GIVEN", "is no reward term"),
        ("swe_rollout.grading.rewards:NamedTerm.score", "can't be called with one argument"),
    ],
)
def test_a_term_that_can_not_be_used_is_refused_before_any_episode(use: str, message: str) -> None:
    with pytest.raises(ExtensionError, match=message):
        Rewards((RewardUse(use=use),))
