"""Campaigns: every surface for a moment, and surfaces that are broken on purpose for longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_dev.fuzz.campaign import ChildProcess, run_surface
from rollout_dev.fuzz.minimise import minimised
from rollout_dev.fuzz.mutate import MOST_BYTES, Mutator
from rollout_dev.fuzz.surfaces import SURFACES, load

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")

TESTS = Path(__file__).parents[3]
INPUTS = 150
SLOW = {"supervisor-requests": 10, "model-turns": 40, "job-yaml": 80}
"""These take longer for an input: some start a process."""


@pytest.fixture(scope="module")
def child() -> Iterator[ChildProcess]:
    with ChildProcess() as made:
        yield made


@pytest.mark.threat(point=31)
@pytest.mark.parametrize("name", SURFACES)
def test_a_short_run_of_a_surface_finds_nothing(child: ChildProcess, name: str) -> None:
    inputs = SLOW.get(name, INPUTS)
    result = run_surface(child, name, inputs=inputs, seed=1)
    assert result.inputs == inputs
    assert result.accepted + result.refused == inputs
    assert not result.findings, next(iter(result.findings.values())).details


@pytest.mark.parametrize(
    ("attribute", "signature"),
    [
        ("CRASH", "KeyError in planted.py:_crash"),
        ("HANG", "hang"),
        ("DIE", "the process died: 3"),
        ("GROW", "memory"),
        ("LIE", "BrokenPromiseError: there is nothing bad"),
    ],
)
def test_a_broken_surface_is_found_and_its_input_made_smaller(
    monkeypatch: pytest.MonkeyPatch, attribute: str, signature: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    with ChildProcess() as own:
        name = f"unit.scripts.fuzz.planted:{attribute}"
        result = run_surface(own, name, inputs=2, seed=0, tries_of_deaths=3)
    [finding] = result.findings.values()
    assert finding.signature == signature
    assert b"bad" in finding.data
    if attribute != "GROW":  # what it has once is not had twice
        assert len(finding.data) < len(b"four\nbad\nfive" * 3), finding.data


def test_an_input_is_the_same_for_one_seed_and_bounded() -> None:
    surface = load("test-logs")
    mutator = Mutator(surface, tuple(surface.samples()))
    some = range(len(mutator.samples), len(mutator.samples) + 300)
    inputs = [mutator.input(3, number) for number in some]
    assert inputs == [mutator.input(3, number) for number in some]
    assert inputs != [mutator.input(4, number) for number in some]
    assert len(set(inputs)) > 0.9 * len(inputs)
    assert max(map(len, inputs)) <= MOST_BYTES + 100


def test_an_input_is_minimised_to_what_matters() -> None:
    data = b"a\nb\n" * 50 + b"needle\n" + b"c\n" * 50
    assert minimised(data, lambda some: b"needle" in some, tries=1000) == b"needle"
    assert minimised(data, lambda some: b"needle" in some, tries=0) == data
