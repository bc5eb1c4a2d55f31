"""The odds of guessing what tests expect."""

from __future__ import annotations

import random

import pytest

from swe_rollout.grading.holes import Value
from swe_rollout.grading.odds import PROVEN, odds, shown


@pytest.mark.parametrize(
    ("values", "visible", "proven"),
    [
        ([], "", False),
        (["v1.1.0-dev.0"], "", True),
        ([b"v1.1.0-dev.0"], "", True),
        (["v1.1.0-dev.0"], "the version becomes v1.1.0-dev.0 in that case", False),
        ([3], "", False),
        (["3", 3, 3.0], "", False),
        ([16.5, 34, 35, 33], "", True),
        ([12345678901234567890], "", True),
        (["yes", "no"], "", False),
        ([""], "", False),
        (["a" * 100_000], "", True),
    ],
)
def test_odds_that_are_no_guess(values: list[Value], visible: str, *, proven: bool) -> None:
    assert (odds(values, visible) <= PROVEN) is proven


def test_one_value_is_worth_no_more_than_a_text_of_the_repository() -> None:
    assert odds(["x" * 5000], "") == odds(["y" * 13], "") > 1e-4


def test_who_picks_one_of_the_visible_words_wins_as_often_as_the_odds_say() -> None:
    words = [f"some-word-{number}" for number in range(63)]
    chance = random.Random(1)
    expected = "some-word-7"
    wins = sum(chance.choice(words) == expected for _ in range(20_000))
    claimed = odds([expected], " ".join(words))
    assert wins / 20_000 == pytest.approx(claimed, rel=0.2)


def test_odds_are_shown_for_people() -> None:
    assert [shown(each) for each in (1.0, 0.025, 2.0**-37, 0.0)] == [
        "1 in 1",
        "1 in 40",
        "1 in 2^37",
        "none",
    ]
