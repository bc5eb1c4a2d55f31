"""The terms about tests, tokens, turns and calls: what each earns, also at the edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given as for_each
from hypothesis import strategies as st

from swe_rollout.grading.reward_terms import Format, Fraction, Length, Turns
from swe_rollout.grading.rewards import RewardInput, Rewards, ScoreFunction
from swe_rollout.spec.grading import RewardUse
from swe_rollout.testing.extensions.reward_terms import RewardTermContract, graded
from swe_rollout.types.instance import Expected, Instance, Rule
from swe_rollout.types.turn import CallStatus
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus

PASSED, FAILED, SKIPPED = TestStatus.PASSED, TestStatus.FAILED, TestStatus.SKIPPED
MISSING = TestStatus.MISSING
TASK = Instance(instance_id="one", problem_statement="fix it", image="image:1")


class TestFractionContract(RewardTermContract):
    @pytest.fixture
    def term(self) -> ScoreFunction:
        return Fraction(tests="fail_to_pass")


class TestLengthContract(RewardTermContract):
    @pytest.fixture
    def term(self) -> ScoreFunction:
        return Length(free=0, limit=100)


class TestTurnsContract(RewardTermContract):
    @pytest.fixture
    def term(self) -> ScoreFunction:
        return Turns(free=1, limit=2, best=1, worst=0)


class TestFormatContract(RewardTermContract):
    @pytest.fixture
    def term(self) -> ScoreFunction:
        return Format()


def episode(
    fixed: tuple[TestStatus, ...] = (),
    kept: tuple[TestStatus, ...] = (),
    *,
    status: VerdictStatus = VerdictStatus.UNRESOLVED,
    rule: Rule = Rule.F2P_P2P,
) -> RewardInput:
    report = TestReport(
        {f"f{n}": each for n, each in enumerate(fixed)},
        {f"k{n}": each for n, each in enumerate(kept)},
    )
    return RewardInput(replace(TASK, rule=rule), Verdict(status, report))


@pytest.mark.parametrize(
    ("tests", "score"), [("all", 3 / 5), ("fail_to_pass", 1 / 2), ("pass_to_pass", 2 / 3)]
)
def test_a_fraction_is_that_of_the_tests_that_end_as_asked(tests: str, score: float) -> None:
    # A test to keep may be skipped; one to fix may not.
    given = episode((PASSED, SKIPPED), (PASSED, SKIPPED, FAILED))
    assert Fraction(tests=tests)(given) == pytest.approx(score)


@pytest.mark.parametrize(
    "status", [each for each in VerdictStatus if each is not VerdictStatus.RESOLVED]
)
@pytest.mark.parametrize("rule", [Rule.FAIL_ONLY, Rule.NO_NEW_FAILURES])
def test_what_no_test_shows_earns_no_fraction_although_missing_is_no_failure(
    status: VerdictStatus, rule: Rule
) -> None:
    assert Fraction()(episode((), (MISSING, MISSING), status=status, rule=rule)) == 0.0


def test_an_unresolved_run_whose_log_claims_every_pass_earns_no_fraction() -> None:
    # The exit code said otherwise, for example: the log is not believed.
    assert Fraction()(episode((PASSED,), (PASSED,))) == 0.0
    assert Fraction(tests="fail_to_pass")(episode((PASSED,), (PASSED,))) == 0.0


def test_a_resolved_task_earns_the_whole_fraction_whatever_was_skipped() -> None:
    resolved = VerdictStatus.RESOLVED
    assert Fraction()(episode((), (), status=resolved, rule=Rule.REWARD_FILE)) == 1.0
    assert Fraction(tests="fail_to_pass")(episode((), (PASSED,), status=resolved)) == 1.0


def test_tests_that_end_otherwise_with_the_fix_count_by_the_status_asked_for() -> None:
    asked = Expected(("f",), (), {"x": FAILED, "y": SKIPPED})
    report = TestReport({"f": FAILED}, {}, {"x": FAILED, "y": PASSED, "new": PASSED})
    given = RewardInput(
        replace(TASK, rule=Rule.EXACT_MATCH, expected=asked),
        Verdict(VerdictStatus.UNRESOLVED, report),
    )
    assert Fraction()(given) == pytest.approx(1 / 4)


@for_each(
    fixed=st.lists(st.sampled_from(TestStatus), max_size=5),
    kept=st.lists(st.sampled_from(TestStatus), max_size=5),
    status=st.sampled_from(VerdictStatus),
    rule=st.sampled_from(Rule),
)
def test_a_fraction_is_1_only_for_what_resolves(
    fixed: list[TestStatus], kept: list[TestStatus], status: VerdictStatus, rule: Rule
) -> None:
    score = Fraction()(episode(tuple(fixed), tuple(kept), status=status, rule=rule))
    assert 0.0 <= score <= 1.0
    assert (score == 1.0) == (status is VerdictStatus.RESOLVED)


async def test_a_tampered_verdict_earns_nothing_from_any_term() -> None:
    terms = ("fraction", "format", "resolved")
    rewards = Rewards(tuple(RewardUse(use=name) for name in terms))
    given = graded(TASK, VerdictStatus.TAMPERED)
    assert (await rewards.score(given)).value == 0.0
    assert Fraction()(given) == 0.0


@pytest.mark.parametrize(
    ("tokens", "penalty", "bonus"),
    [(0, 0.0, 1.0), (100, 0.0, 1.0), (150, -0.5, 0.5), (200, -1.0, 0.0), (10**9, -1.0, 0.0)],
)
def test_length_is_free_then_falls_in_a_line_and_has_a_floor(
    tokens: int, penalty: float, bonus: float
) -> None:
    turn = graded(TASK, VerdictStatus.RESOLVED).turns[0]
    given = replace(episode(), turns=(replace(turn, completion_tokens=tokens),))
    assert Length(free=100, limit=200)(given) == pytest.approx(penalty)
    assert Length(free=100, limit=200, best=1, worst=0)(given) == pytest.approx(bonus)


def test_turns_count_each_generation_and_none_is_the_best() -> None:
    given = graded(TASK, VerdictStatus.RESOLVED)
    term = Turns(free=0, limit=4)
    assert term(given) == pytest.approx(-0.5)
    assert term(replace(given, turns=())) == 0.0


def test_format_is_the_share_of_calls_that_could_be_run() -> None:
    given = graded(TASK, VerdictStatus.RESOLVED)
    first = given.turns[0]
    statuses = Counter({CallStatus.OK: 3, CallStatus.UNKNOWN_TOOL: 1, CallStatus.UNCLOSED: 1})
    calls = tuple(replace(first.tool_calls[0], status=each) for each in statuses.elements())
    many = replace(given, turns=(replace(first, tool_calls=calls),))
    assert Format()(many) == pytest.approx(3 / 5)


@pytest.mark.parametrize(("options", "score"), [({}, 0.0), ({"withoutCalls": -1.0}, -1.0)])
def test_an_episode_without_calls_has_the_score_that_the_job_says(
    options: dict[str, object], score: float
) -> None:
    given = graded(TASK, VerdictStatus.RESOLVED)
    silent = tuple(replace(turn, tool_calls=()) for turn in given.turns)
    assert Format(**options)(replace(given, turns=silent)) == score
    assert Format(**options)(replace(given, turns=())) == score
