"""Parts of the chaos suite; the suite itself needs the dev cluster: tests/cluster/test_chaos.py."""

from __future__ import annotations

import random
from argparse import Namespace

import pytest

from rollout_dev.conformance.chaos import killed_job
from rollout_dev.conformance.chaos.faults import KILLS
from rollout_dev.faults import relay
from rollout_dev.faults.fault_proxy import CutError

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


def test_an_error_takes_the_place_of_a_response_and_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "_ERROR_CHANCE", 1.0)
    errors = relay.RandomErrors(random.Random(0))
    assert errors.filter(RESPONSE) == RESPONSE
    errors.is_on = True

    assert errors.filter(b"body of the response before") == b"body of the response before"
    assert errors.filter(RESPONSE).startswith(b"HTTP/1.1 503 ")
    with pytest.raises(CutError):
        errors.filter(b"body")


def test_some_responses_are_errors_and_most_are_not() -> None:
    rng = random.Random(0)
    found = 0
    for _ in range(2000):
        errors = relay.RandomErrors(rng)
        errors.is_on = True
        found += errors.filter(RESPONSE) != RESPONSE
    assert 50 <= found <= 200


def test_what_was_in_flight_depends_on_what_was_killed() -> None:
    given = Namespace(parallelism=8, workers=4)

    assert killed_job._in_flight(dict.fromkeys(KILLS, 0), given) == 0
    assert {what: killed_job._in_flight({what: 1}, given) for what in KILLS} == {
        "worker": 2,
        "operator": 0,
        "engine": 8,
        "sandbox": 1,
        "API server": 8,
    }
