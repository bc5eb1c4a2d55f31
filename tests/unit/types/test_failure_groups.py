"""Failures that say the same are one group, and no job's messages take up more than a few."""

from __future__ import annotations

from swe_rollout.errors import Boundary
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.failure_groups import MOST_GROUPS, FailureGroups


def failure(message: str, *, fix: str = "") -> Failure:
    return Failure(Boundary.SANDBOX, "PodLostError", message, retryable=True, fix=fix)


def grouped(*failures: Failure) -> FailureGroups:
    groups = FailureGroups()
    for sample, each in enumerate(failures):
        groups.add(EpisodeId("demo", "a", sample), each)
    return groups


def test_numbers_names_of_pods_and_paths_are_no_difference() -> None:
    one, other = grouped(
        failure("another"),
        failure("pod demo-a-0-x7 is gone after 12.5 s", fix="look at the node"),
        failure("pod demo-a-1-k9 is gone after 3 s", fix="look at the node"),
    ).ranked()
    assert (one.count, one.example, one.fix) == (2, "demo/a/1", "look at the node")
    assert one.message == "pod demo-a-0-x7 is gone after 12.5 s"
    assert (other.count, other.message) == (1, "another")
    assert "swe-rollout doctor" in other.fix


def test_exit_codes_statuses_lines_of_code_and_fixes_are_differences() -> None:
    for one, other in (
        (failure("git ended: exit code 1"), failure("git ended: exit code 137")),
        (failure("no answer: HTTP 429: x"), failure("no answer: HTTP 500: x")),
        (failure("boom (mine.py:3: f())"), failure("boom (mine.py:9: f())")),
        (failure("boom", fix="correct this line"), failure("boom", fix="start the server")),
    ):
        assert len(grouped(one, other).ranked()) == 2


def test_each_owner_has_something_to_do() -> None:
    for owner in Boundary:
        (group,) = grouped(Failure(owner, "E", "m", retryable=False)).ranked()
        assert group.fix


def test_memory_and_width_are_bounded() -> None:
    words = [f"{'x' * n} \x1b[31m\n" for n in range(1, 3 * MOST_GROUPS)]
    found = grouped(*map(failure, (*words, "y" * 1_000_000))).ranked()
    assert len(found) == MOST_GROUPS + 1
    assert sum(each.count for each in found) == len(words) + 1
    assert found[0].message == "other messages"
    assert all(len(each.message) <= 501 and each.message.isprintable() for each in found)
