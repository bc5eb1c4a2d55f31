"""Which sample replaces a failed one, and which are known."""

from __future__ import annotations

import pytest

from swe_rollout.errors import Boundary
from swe_rollout.store.refills import Refills, replacement
from swe_rollout.types.episode import EpisodeId, Failure

LOST = Failure(Boundary.SANDBOX, "PodLostError", "gone", retryable=True)
NO_IMAGE = Failure(Boundary.SANDBOX, "ImageUnavailableError", "none", retryable=False)


def sample(number: int, instance: str = "a") -> EpisodeId:
    return EpisodeId("demo", instance, number)


@pytest.mark.parametrize(
    ("number", "failure", "by"),
    [(1, LOST, 5), (5, LOST, 9), (9, LOST, None), (1, None, None), (1, NO_IMAGE, None)],
)
def test_a_sample_is_followed_by_the_one_that_is_n_higher_until_refills_end(
    number: int, failure: Failure | None, by: int | None
) -> None:
    found = replacement(sample(number), failure, wanted=4, refills=2)
    assert found == (None if by is None else sample(by))


def test_groups_that_begin_at_another_number_count_from_there() -> None:
    assert replacement(sample(105), LOST, wanted=4, refills=1, first=104) == sample(109)
    assert replacement(sample(109), LOST, wanted=4, refills=1, first=104) is None


def test_each_replacement_is_decided_on_once() -> None:
    refills = Refills({"a": 2}, 2, [sample(0), sample(3)])
    assert refills.decide(sample(0), LOST) == sample(2)
    assert refills.decide(sample(0), LOST) is None
    assert refills.decide(sample(1), LOST) is None, "it is committed"
    assert refills.known == {sample(2), sample(3)}


def test_what_is_no_replacement_is_told_from_one() -> None:
    refills = Refills({"a": 4}, 2)
    assert [n for n in range(20) if refills.holds(sample(n))] == list(range(4, 12))
    # A run of fewer samples than planned replaces only its own.
    assert [n for n in range(20) if refills.holds(sample(n), samples=1)] == [4, 8]
    assert not refills.holds(sample(4, "another"))
    assert refills.decide(sample(0, "another"), LOST) is None
    assert refills.below == 12
