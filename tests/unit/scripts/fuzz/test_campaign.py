"""Every surface for a moment, inputs that once broke a rule, and surfaces that are broken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from rollout_dev.fuzz import campaign
from rollout_dev.fuzz.campaign import ChildProcess, minimised, run_surface
from rollout_dev.fuzz.child import run_one
from rollout_dev.fuzz.mutate import MOST_BYTES, Mutator
from rollout_dev.fuzz.schema import SchemaWriter
from rollout_dev.fuzz.surfaces import SURFACES, load

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")

INPUTS = 50
SLOW = {"supervisor-requests": 10, "model-turns": 30}
"""These take longer for an input: some start a process."""
KEPT = campaign.cases()
SCHEMA = {
    "$defs": {
        "Point": {
            "type": "object",
            "properties": {"x": {"type": "integer", "minimum": 3, "maximum": 5}},
            "required": ["x"],
        }
    },
    "type": "object",
    "properties": {
        "kind": {"const": "Shape"},
        "colour": {"enum": ["red", "blue"], "type": "string"},
        "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}, "minItems": 1},
        "width": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
    },
    "required": ["kind", "points"],
}


@pytest.fixture(scope="module")
def child() -> Iterator[ChildProcess]:
    with ChildProcess() as made:
        yield made


@pytest.mark.parametrize(
    ("name", "path"), KEPT, ids=[f"{name}: {path.stem}" for name, path in KEPT]
)
def test_a_kept_input_is_read_or_refused(name: str, path: Path) -> None:
    assert path.stat().st_size <= campaign.MOST_BYTES
    assert isinstance(run_one(load(name), path.read_bytes()), bool)


@pytest.mark.threat(point=31)
@pytest.mark.parametrize("name", SURFACES)
def test_a_short_run_of_a_surface_finds_nothing(child: ChildProcess, name: str) -> None:
    inputs = SLOW.get(name, INPUTS)
    result = run_surface(child, name, inputs=inputs, seed=1)
    assert result.inputs == inputs
    assert result.total.accepted + result.total.refused == inputs
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
    attribute: str, signature: str
) -> None:
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


def test_a_value_is_what_the_schema_allows_and_a_refused_change_is_dropped() -> None:
    start = {"kind": "Shape", "points": [{"x": 3}]}
    for seed in range(50):
        writer = SchemaWriter(SCHEMA, random.Random(seed))
        jsonschema.validate(writer.value(SCHEMA), SCHEMA)
        assert writer.grown(start, changes=20, accepts=lambda _: False) == start
        grown = writer.grown(start, changes=20, accepts=lambda each: "colour" not in str(each))
        assert "colour" not in str(grown)
        assert start == {"kind": "Shape", "points": [{"x": 3}]}
