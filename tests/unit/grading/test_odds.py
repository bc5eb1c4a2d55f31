"""The odds of guessing what tests expect."""

from __future__ import annotations

import math
import random

import pytest

from swe_rollout.grading.odds import PROVEN, odds, shown
from swe_rollout.grading.wants import Close, Computed, Contains, Equal, Truth, Value, Want


def equal(*values: Value) -> list[tuple[Want, bool]]:
    return [(Equal(value), True) for value in values]


@pytest.mark.parametrize(
    ("values", "visible", "proven"),
    [
        ([], "", False),
        (["v1.1.0-dev.0"], "", True),
        ([b"v1.1.0-dev.0"], "", True),
        (["v1.1.0-dev.0"], "the version becomes v1.1.0-dev.0 in that case", False),
        (["some\nlines\u00e9"], 'assert f() == "some\\nlines\u00e9"', False),
        (["some\nlines\u00e9"], '{"a": "some\\nlines\\u00e9"}', False),
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
    assert (odds(equal(*values), visible) <= PROVEN) is proven


def test_one_value_is_worth_no_more_than_a_text_of_the_repository() -> None:
    assert odds(equal("x" * 5000), "") == odds(equal("y" * 13), "") > 1e-4


def test_who_picks_one_of_the_visible_words_wins_as_often_as_the_odds_say() -> None:
    words = [f"some-word-{number}" for number in range(63)]
    chance = random.Random(1)
    expected = "some-word-7"
    wins = sum(chance.choice(words) == expected for _ in range(20_000))
    claimed = odds(equal(expected), " ".join(words))
    assert wins / 20_000 == pytest.approx(claimed, rel=0.2)


def test_a_word_of_the_issue_is_known_to_who_understands_it() -> None:
    issue = "Of red, amber and green the lamp shows the wrong one."
    assert odds(equal("amber"), issue, issue=issue) == 0.5
    assert odds(equal("One: lamp"), issue, issue=issue) == 2.0 ** -(1 + len(": ") + 1)
    assert odds(equal("1234567 green"), "", issue=f"{issue} 1234567") == 2.0**-3
    assert odds([(Contains("the lamp shows the wrong one"), True)], "", issue=issue) == 1.0


def test_many_values_are_not_searched_for_once_there_are_enough() -> None:
    """It took minutes."""
    visible = "aaaa\n" * 1_000_000
    values = equal(*(f'{each} is "somewhere"' for each in range(5000)))
    assert odds(values, visible, issue=visible) == 2.0**-1000


def test_odds_are_shown_for_people() -> None:
    assert [shown(each) for each in (1.0, 0.025, 2.0**-37, 0.0)] == [
        "1 in 1",
        "1 in 40",
        "1 in 2^37",
        "none",
    ]


@pytest.mark.parametrize(
    ("want", "bits"),
    [
        (Computed(("abc", ["de", 7])), 3 + 2 + 1),
        (Close([12.5, 3], 0.0, 0.01), 1 + 2 * 3.3219 + 1),
        (Close([123456.5, 0.0], 0.25, 1e-9), 1 + 2 + 1),
        (Close([123456, 10**400 + 7, "abc"], 0.1, 4e5), 1 + 4.3219 + 3),
        (Equal(value=True), 0.0),
        (Equal(1200.0), 1 + 3.3219),
        (Equal(-0.001), 1.0),
        (Contains("a part of forty characters that is unseen"), 13.0),
        (Contains("a part of twenty one"), 4.0),
        (Contains("a part"), 0.0),
        (Contains("a part that stands in the issue for all to see"), 0.0),
        (Truth.TRUE, 0.0),
    ],
)
def test_each_check_has_its_odds(want: Want, bits: float) -> None:
    visible = "a part that stands in the issue for all to see"
    assert -math.log2(odds([(want, True)], visible)) == pytest.approx(bits, rel=1e-3)
    assert odds([(want, False)], visible) == 1.0


@pytest.mark.parametrize("tells", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("positive", [0.5, 0.9])
def test_who_guesses_answers_wins_no_more_often_than_the_odds_say(
    tells: float, positive: float
) -> None:
    """They know what the base answers, and how many checks it fails, but not which."""
    chance = random.Random(2)
    wins = claimed = 0.0
    for _ in range(4000):
        checks = [
            (Truth.TRUE if chance.random() < positive else Truth.FALSE, chance.random() < tells)
            for _ in range(5)
        ]
        wrong = {at for at, (_, each) in enumerate(checks) if each}
        claimed += odds(checks, "")
        wins += wrong == {*chance.sample(range(5), len(wrong))}
    assert wins <= claimed * 1.05
