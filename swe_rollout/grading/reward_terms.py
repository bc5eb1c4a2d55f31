"""The built-in reward terms that look at tests, tokens, turns and calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from swe_rollout.grading import rules
from swe_rollout.grading.rewards import RewardInput
from swe_rollout.spec.model import Model
from swe_rollout.spec.reward_terms import (
    BudgetOptions,
    FormatOptions,
    FractionOptions,
    Tests,
    read_options,
)
from swe_rollout.types.instance import Rule
from swe_rollout.types.turn import CallStatus
from swe_rollout.types.verdict import TestStatus, VerdictStatus

OptionsT = TypeVar("OptionsT", bound=Model)


class _Term(Generic[OptionsT]):
    """A term with options of a declared type."""

    options: type[OptionsT]

    def __init__(self, **options: object) -> None:
        """Check the options. Raises ValueError for unknown ones."""
        self._options = read_options(self.options, options)


class Fraction(_Term[FractionOptions]):
    """Scores the share of the expected tests that end as the task's rule asks, from 0 to 1.

    The score is 1 only if the task is resolved, and 0 without a run that can be believed: a diff
    that does not apply, unfinished tests, a verdict that was tampered with. A task without such
    tests, or without any in the chosen list, scores as `resolved` does.
    """

    options = FractionOptions

    def __call__(self, given: RewardInput) -> float:
        """Score an episode."""
        if given.verdict.resolved:
            return 1.0
        if given.verdict.status is not VerdictStatus.UNRESOLVED:
            return 0.0
        met = [each for tests in self._lists(given) for each in tests]
        # A run whose tests all meet the rule and which is still unresolved was not believed.
        everything = [each for tests in _met(given) for each in tests]
        return sum(met) / len(met) if met and not all(everything) else 0.0

    def _lists(self, given: RewardInput) -> tuple[list[bool], ...]:
        fixed, kept, others = _met(given)
        match self._options.tests:
            case Tests.ALL:
                return fixed, kept, others
            case Tests.FAIL_TO_PASS:
                return (fixed,)
            case Tests.PASS_TO_PASS:
                return (kept,)


def _met(given: RewardInput) -> tuple[list[bool], list[bool], list[bool]]:
    """Return for each expected test of each list whether it meets the rule."""
    report, rule = given.verdict.report, given.instance.rule
    asked = given.instance.expected.others
    return (
        _as_asked(report.fail_to_pass, rules.FIXED, rule),
        _as_asked(report.pass_to_pass, rules.KEPT, rule),
        [status is asked.get(test) for test, status in report.others.items()],
    )


def _as_asked(
    tests: Mapping[str, TestStatus], accepted: frozenset[TestStatus], rule: Rule
) -> list[bool]:
    unmet = frozenset(rules.unmet(tests, accepted, rule))
    return [test not in unmet for test in tests]


class Length(_Term[BudgetOptions]):
    """Scores the tokens that the policy sampled, over all turns and branches."""

    options = BudgetOptions

    def __call__(self, given: RewardInput) -> float:
        """Score an episode."""
        return _falling(self._options, given.sampled_tokens)


class Turns(_Term[BudgetOptions]):
    """Scores the turns that the policy took, over all branches."""

    options = BudgetOptions

    def __call__(self, given: RewardInput) -> float:
        """Score an episode."""
        return _falling(self._options, len(given.turns))


def _falling(options: BudgetOptions, used: int) -> float:
    share = (used - options.free) / (options.limit - options.free)
    return options.best + (options.worst - options.best) * min(1.0, max(0.0, share))


class Format(_Term[FormatOptions]):
    """Scores the share of the tool calls that could be run as sampled, from 0 to 1.

    Calls that do not parse, name an unknown tool or have bad arguments count as calls, too.
    """

    options = FormatOptions

    def __call__(self, given: RewardInput) -> float:
        """Score an episode."""
        calls = given.tool_calls
        if not calls:
            return self._options.without_calls
        return sum(call.status is CallStatus.OK for call in calls) / len(calls)
