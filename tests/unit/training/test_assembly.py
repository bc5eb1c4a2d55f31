"""Which samples make up a group: each record keeps its number, replacements included."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.errors import Boundary
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.training.assembly import Assembly
from swe_rollout.types.episode import EpisodeId
from unit.training.group_parts import BAD_TASK, LOST, sample


def assembly(wanted: int = 2, refills: int = 2) -> Assembly:
    return Assembly("demo/a", wanted=wanted, refills=refills)


def test_a_failed_sample_is_replaced_and_not_its_group() -> None:
    found = assembly()
    assert found.missing() == (0, 1)
    found.add(sample(number=0))
    found.add(sample(number=1, failure=LOST))
    assert found.missing() == (3,)
    found.add(sample(number=3, reward=0.0))
    assert found.missing() == ()

    group = found.group()
    assert [each.episode.sample for each in group.trajectories] == [0, 3]
    assert [each.rollout_id for each in group.failed] == ["demo/a/1"]
    assert group.failed[0].owner is Boundary.SANDBOX
    assert (group.is_short, group.has_signal) == (False, True)


def test_refills_are_bounded_and_the_group_is_short_then() -> None:
    found = assembly()
    found.add(sample(number=0))
    for number in (1, 3, 5):
        assert found.missing() == (number,)
        found.add(sample(number=number, failure=LOST))
    assert found.missing() == ()
    group = found.group()
    assert group.is_short
    assert [each.rollout_id for each in group.failed] == ["demo/a/1", "demo/a/3", "demo/a/5"]
    assert repr(group) == "<Group demo/a: 1/2 samples, 3 failed, no signal>"


def test_what_every_sample_of_the_task_would_meet_is_not_refilled() -> None:
    found = assembly(wanted=1)
    found.add(sample(number=0, failure=BAD_TASK))
    assert found.missing() == ()
    assert found.group().trajectories == ()


def test_a_record_that_cant_be_read_has_failed_unless_another_stands_in_for_it() -> None:
    found = assembly()
    found.add(sample(number=0))
    found.add_damaged(DamagedRecord(EpisodeId("demo", "a", 1), "file:///x", "cut off"))
    assert found.missing() == ()
    assert found.group().is_short
    assert found.group().failed[0].owner is Boundary.STORE
    found.add(sample(number=3))
    assert not found.group().is_short


def test_a_sample_that_comes_twice_counts_once() -> None:
    found = assembly()
    for number in (0, 1, 0, 1, 1):
        found.add(sample(number=number, reward=float(number)))
    group = found.group()
    assert (len(group.trajectories), group.duplicates) == (2, 3)
    assert group.rewards == (0.0, 1.0)


@settings(deadline=None)
@given(
    wanted=st.integers(1, 5),
    refills=st.integers(0, 3),
    fails=st.frozensets(st.integers(0, 25)),
    seed=st.integers(),
)
def test_playing_what_is_missing_ends_within_the_bound_in_any_order(
    wanted: int, refills: int, fails: frozenset[int], seed: int
) -> None:
    chance = random.Random(seed)
    found = assembly(wanted, refills)
    played: set[int] = set()
    while missing := found.missing():
        number = chance.choice(missing)
        assert number not in played
        played.add(number)
        found.add(sample(number=number, failure=LOST if number in fails else None))
    group = found.group()
    assert len(played) == wanted + min(len(played & fails), len(played) - wanted)
    assert len(played) <= wanted * (1 + refills)
    assert len(group.trajectories) == len(played - fails)
    assert len(group.failed) == len(played & fails)
    assert group.is_short == (len(played - fails) < wanted)
