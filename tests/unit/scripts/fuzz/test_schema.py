"""Documents that are written from a schema: their reader accepts them, and they reach all of it."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
import yaml

from rollout_dev.fuzz.child import run_one
from rollout_dev.fuzz.mutate import Mutator
from rollout_dev.fuzz.schema import SchemaWriter
from rollout_dev.fuzz.surfaces import load
from swe_rollout.spec.job import RolloutJobSpec

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


@pytest.mark.parametrize("seed", range(50))
def test_a_value_is_what_the_schema_allows(seed: int) -> None:
    writer = SchemaWriter(SCHEMA, random.Random(seed))
    jsonschema.validate(writer.value(SCHEMA), SCHEMA)


@pytest.mark.parametrize("seed", range(10))
def test_a_change_that_is_refused_is_dropped(seed: int) -> None:
    start = {"kind": "Shape", "points": [{"x": 3}]}
    writer = SchemaWriter(SCHEMA, random.Random(seed))
    assert writer.grown(start, changes=20, accepts=lambda _: False) == start
    grown = writer.grown(start, changes=20, accepts=lambda each: "colour" not in str(each))
    assert "colour" not in str(grown)
    assert start == {"kind": "Shape", "points": [{"x": 3}]}


def test_a_third_of_the_jobs_is_accepted_and_they_reach_every_field_of_a_spec() -> None:
    surface = load("job-yaml")
    mutator = Mutator(surface, tuple(surface.samples()))
    inputs = [mutator.input(0, number) for number in range(600)]
    assert inputs == [mutator.input(0, number) for number in range(600)], "not repeatable"
    accepted = [each for each in inputs if run_one(surface, each) is True]
    assert len(accepted) > len(inputs) / 3
    specs = [yaml.safe_load(each)["spec"] for each in accepted]
    fields = {field.alias or name for name, field in RolloutJobSpec.model_fields.items()}
    assert fields == {name for spec in specs for name in spec} & fields
    assert len({json.dumps(spec, default=str, sort_keys=True) for spec in specs}) > len(specs) / 2
