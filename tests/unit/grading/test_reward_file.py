"""The rule `reward_file`: what the tests write is read, and believed only if it is a number."""

from __future__ import annotations

import json

import pytest

from swe_rollout.grading.reward_file import parse, score
from swe_rollout.grading.rewards import RewardInput
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestReport, Verdict, VerdictStatus

INSTANCE = Instance(instance_id="one", problem_statement="", image="")


@pytest.mark.parametrize(
    ("name", "data", "scores"),
    [
        ("reward.txt", b"1\n", {"reward": 1.0}),
        ("reward.txt", b" 0.25 ", {"reward": 0.25}),
        ("reward.txt", b"-1", {"reward": -1.0}),
        ("reward.json", b"0.5", {"reward": 0.5}),
        ("reward.json", b"true", {"reward": 1.0}),
        ("reward.json", b'{"reward": 1, "style": 0.5}', {"reward": 1.0, "style": 0.5}),
    ],
)
def test_numbers_are_read(name: str, data: bytes, scores: dict[str, float]) -> None:
    assert parse(name, data) == scores


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("reward.txt", b""),
        ("reward.txt", b"nan"),
        ("reward.txt", b"inf"),
        ("reward.txt", b"1e999"),
        ("reward.txt", b"one"),
        ("reward.txt", b"1 1"),
        ("reward.txt", b"\xff"),
        ("reward.txt", b"1" * 70_000),
        ("reward.json", b""),
        ("reward.json", b"{}"),
        ("reward.json", b"[1]"),
        ("reward.json", b'"1"'),
        ("reward.json", b'{"reward": "1"}'),
        ("reward.json", b'{"reward": NaN}'),
        ("reward.json", b'{"reward": 1e999}'),
        ("reward.json", b'{"reward": {"a": 1}}'),
        ("reward.json", b"1" + b"0" * 400),
        ("reward.json", b"[" * 60_000),
        ("reward.json", json.dumps({str(n): 1 for n in range(101)}).encode()),
    ],
)
def test_what_is_no_finite_number_is_no_reward(name: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(name, data)


@pytest.mark.parametrize(
    ("scores", "status", "reward"),
    [
        ({"reward": 0.25, "style": 1.0}, VerdictStatus.UNRESOLVED, 0.25),
        ({"style": 0.75}, VerdictStatus.UNRESOLVED, 0.75),
        ({"a": 1.0, "b": 1.0}, VerdictStatus.RESOLVED, 1.0),
        ({"a": 0.5, "b": 1.0}, VerdictStatus.UNRESOLVED, 0.0),
        ({}, VerdictStatus.NO_TESTS_RAN, 0.0),
    ],
)
def test_partial_credit_is_a_reward_term(
    scores: dict[str, float], status: VerdictStatus, reward: float
) -> None:
    verdict = Verdict(status, TestReport({}, {}), scores=scores)
    assert score(RewardInput(INSTANCE, verdict)) == reward
