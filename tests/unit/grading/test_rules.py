"""What statuses mean for a task."""

from __future__ import annotations

import pytest

from ratios import growth
from swe_rollout.grading import rules
from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.rules import FIXED, KEPT, judge, unmet
from swe_rollout.types.instance import Expected, Rule
from swe_rollout.types.verdict import TestStatus, VerdictStatus

EXPECTED = Expected(("f",), ("p",))
S = TestStatus


@pytest.mark.parametrize(
    ("f2p", "p2p", "resolved"),
    [
        (S.PASSED, S.PASSED, True),
        (S.XFAIL, S.XFAIL, True),
        (S.PASSED, S.SKIPPED, True),
        (S.SKIPPED, S.PASSED, False),
        (S.FAILED, S.PASSED, False),
        (S.ERROR, S.PASSED, False),
        (S.PASSED, S.FAILED, False),
        (S.PASSED, S.ERROR, False),
        (None, S.PASSED, False),
        (S.PASSED, None, False),
    ],
)
def test_all_tests_to_fix_pass_and_none_breaks(
    f2p: TestStatus | None, p2p: TestStatus | None, *, resolved: bool
) -> None:
    statuses = {name: s for name, s in (("f", f2p), ("p", p2p)) if s is not None}
    wanted = VerdictStatus.RESOLVED if resolved else VerdictStatus.UNRESOLVED
    assert judge(statuses, EXPECTED, Rule.F2P_P2P).status is wanted


def test_a_log_without_tests_is_no_success() -> None:
    judgement = judge({}, EXPECTED, Rule.F2P_P2P)
    assert judgement.status is VerdictStatus.NO_TESTS_RAN
    assert judgement.report.fail_to_pass == {"f": S.MISSING}


def test_lists_are_kept_in_order() -> None:
    expected = Expected(("c", "a", "b"), ())
    report = judge({"a": S.PASSED}, expected, Rule.F2P_P2P).report
    assert unmet(report.fail_to_pass, FIXED, Rule.F2P_P2P) == ["c", "b"]
    assert unmet(report.pass_to_pass, KEPT, Rule.F2P_P2P) == []


def test_an_id_cut_inside_a_parameter_stands_for_its_completions_when_they_agree() -> None:
    expected = Expected(("t[log(", "t[mag("), ())
    statuses = {
        "t[log( x)]": S.PASSED,
        "t[log( y)]": S.XFAIL,
        "t[mag( x)]": S.PASSED,
        "t[mag( y)]": S.FAILED,
    }
    report = judge(statuses, expected, Rule.F2P_P2P).report
    assert report.fail_to_pass == {"t[log(": S.PASSED, "t[mag(": S.MISSING}


def test_a_cut_id_does_not_hide_a_broken_test_behind_a_skipped_one() -> None:
    expected = Expected(("f",), ("t[log(",))
    skipped = {"f": S.PASSED, "t[log( x)]": S.SKIPPED, "t[log( y)]": S.SKIPPED}
    assert judge(skipped, expected, Rule.F2P_P2P).status is VerdictStatus.RESOLVED
    broken = {**skipped, "t[log( y)]": S.FAILED}
    assert judge(broken, expected, Rule.F2P_P2P).status is VerdictStatus.UNRESOLVED


@pytest.mark.parametrize("name", ["other[{}]", "t[{}]"])
def test_many_cut_ids_are_not_compared_with_all_of_a_log(name: str) -> None:
    def look(count: int) -> None:
        statuses = {name.format(number): S.PASSED for number in range(count)}
        judge(statuses, Expected(("t[",) * count, ()), Rule.F2P_P2P)

    assert growth(look, 2_000, 8_000) < 3


def test_a_whole_id_never_stands_for_longer_ones() -> None:
    report = judge(
        {"test_ab": S.PASSED, "t[1][2]": S.PASSED}, Expected(("test_a", "t[1]")), Rule.F2P_P2P
    )
    assert set(report.report.fail_to_pass.values()) == {S.MISSING}


def test_where_suites_print_failures_only_silence_after_a_run_is_success() -> None:
    assert judge({"f": S.FAILED}, EXPECTED, Rule.FAIL_ONLY).status is VerdictStatus.UNRESOLVED
    assert judge({"x": S.FAILED}, EXPECTED, Rule.FAIL_ONLY).status is VerdictStatus.RESOLVED
    ran = judge({}, EXPECTED, Rule.FAIL_ONLY, log="Executed 12 of 12 SUCCESS")
    assert ran.status is VerdictStatus.RESOLVED
    for log in ("", "Executed 0 of 0", "browser not found"):
        silent = judge({}, EXPECTED, Rule.FAIL_ONLY, log=log)
        assert silent.status is VerdictStatus.NO_TESTS_RAN


def test_a_log_of_digits_is_searched_once_for_a_run() -> None:
    def search(length: int) -> None:
        judge({}, EXPECTED, Rule.FAIL_ONLY, log="1" * length)

    assert growth(search, 4_000, 16_000) < 3


def verdict(rule: Rule, statuses: dict[str, TestStatus], expected: Expected = EXPECTED) -> bool:
    return judge(statuses, expected, rule).status is VerdictStatus.RESOLVED


def test_an_exact_match_wants_every_test_with_its_status_and_no_other_one() -> None:
    expected = Expected(("f",), ("p",), {"x": S.FAILED, "": S.ERROR})
    right = {"f": S.PASSED, "p": S.PASSED, "x": S.FAILED, "": S.ERROR}
    assert verdict(Rule.EXACT_MATCH, right, expected)
    for wrong in (
        {"x": S.PASSED},  # an expected failure must stay one
        {"x": S.ERROR},
        {"p": S.SKIPPED},
        {"f": S.XFAIL},
        {"new": S.PASSED},
        {"new": S.FAILED},
    ):
        assert not verdict(Rule.EXACT_MATCH, right | wrong, expected), wrong
    for name in right:
        fewer = {test: status for test, status in right.items() if test != name}
        assert not verdict(Rule.EXACT_MATCH, fewer, expected), name
    report = judge(right | {"new": S.PASSED}, expected, Rule.EXACT_MATCH).report
    assert report.others == {"x": S.FAILED, "": S.ERROR, "new": S.PASSED}


def test_equal_pass_sets_allow_no_further_pass_and_any_further_failure() -> None:
    both = {"f": S.PASSED, "p": S.PASSED}
    assert verdict(Rule.PASS_SET_EQUAL, both)
    assert verdict(Rule.PASS_SET_EQUAL, both | {"x": S.FAILED, "y": S.SKIPPED})
    assert not verdict(Rule.PASS_SET_EQUAL, both | {"x": S.PASSED})
    assert not verdict(Rule.PASS_SET_EQUAL, both | {"p": S.SKIPPED})
    assert not verdict(Rule.PASS_SET_EQUAL, {"f": S.PASSED})
    assert judge(both | {"x": S.PASSED}, EXPECTED, Rule.PASS_SET_EQUAL).report.others == {
        "x": S.PASSED
    }


@pytest.mark.parametrize("timing", [" [1.34 ms]", " (2s)", " in 29.08 msec", " (0.5 ms)"])
def test_equal_pass_sets_do_not_compare_durations(timing: str) -> None:
    expected = Expected((f"f{timing}",), ("p (3 ms)",))
    assert verdict(Rule.PASS_SET_EQUAL, {"f (9 ms)": S.PASSED, "p": S.PASSED}, expected)


def test_a_pass_superset_wants_passes_and_allows_any_other_test() -> None:
    both = {"f": S.PASSED, "p": S.PASSED}
    assert verdict(Rule.PASS_SUPERSET, both | {"x": S.FAILED, "y": S.PASSED})
    for status in (S.SKIPPED, S.XFAIL, S.FAILED, S.ERROR):
        assert not verdict(Rule.PASS_SUPERSET, both | {"p": status})
        assert not verdict(Rule.PASS_SUPERSET, both | {"f": status})
    assert not verdict(Rule.PASS_SUPERSET, {"f": S.PASSED})


def test_without_new_failures_a_test_to_keep_may_be_missing_and_one_to_fix_may_not() -> None:
    assert verdict(Rule.NO_NEW_FAILURES, {"f": S.PASSED})
    assert verdict(Rule.NO_NEW_FAILURES, {"f": S.PASSED, "p": S.SKIPPED, "x": S.FAILED})
    for status in (S.FAILED, S.ERROR, S.XFAIL):
        assert not verdict(Rule.NO_NEW_FAILURES, {"f": S.PASSED, "p": status})
    for status in (S.SKIPPED, S.XFAIL, S.FAILED):
        assert not verdict(Rule.NO_NEW_FAILURES, {"f": status, "p": S.PASSED})
    assert not verdict(Rule.NO_NEW_FAILURES, {"p": S.PASSED})


@pytest.mark.parametrize("rule", Rule)
def test_a_log_without_tests_resolves_under_no_rule(rule: Rule) -> None:
    judgement = judge({}, EXPECTED, rule, log="nothing ran")
    assert judgement.status is VerdictStatus.NO_TESTS_RAN
    assert judgement.report.fail_to_pass == {"f": S.MISSING}


@pytest.mark.parametrize("rule", [r for r in Rule if r not in (Rule.F2P_P2P, Rule.FAIL_ONLY)])
def test_ids_that_are_cut_off_count_only_where_the_lists_have_them(rule: Rule) -> None:
    report = judge({"t[a b]": S.PASSED}, Expected(("t[a",)), rule).report
    assert report.fail_to_pass == {"t[a": S.MISSING}


def test_many_findings_are_counted_and_not_listed() -> None:
    found = rules.of_contradictions(f"{n:02}" for n in range(25))
    assert len(found) == 11
    assert found[0] == "reports 00 as both passed and failed"
    assert found[-1] == "and 15 more like the last one"


def test_contradictions_about_expected_tests_are_found() -> None:
    claims = [Result("a", S.FAILED), Result("a", S.PASSED), Result("b", S.PASSED)]
    claims += [Result("c", S.FAILED), Result("c", S.PASSED)]
    assert rules.contradictions(claims, {"a", "b"}) == {"a"}


def test_an_exit_code_without_a_failure_is_found_and_only_that() -> None:
    assert rules.of_exit({"a": S.PASSED}, 1)
    assert not rules.of_exit({"a": S.PASSED}, 0)
    assert not rules.of_exit({"a": S.PASSED, "b": S.ERROR}, 1)
    assert rules.of_exit({}, 1), "as of a suite that prints failures only"
