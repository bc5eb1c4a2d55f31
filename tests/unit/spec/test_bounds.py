"""Every number and text of a job is bounded, by the models and by the CRD alike."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from rollout_dev.codegen.crd import job_schema
from rollout_dev.codegen.structural import Schema, structural
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.model import Use
from unit.spec.spec_parts import GOOD, parsed, problems

pytestmark = pytest.mark.threat(point=7)


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every value inside, by its path."""
    yield path, schema
    for name, inner in schema.properties.items():
        yield from fields(inner, f"{path}.{name}".lstrip("."))
    if schema.items is not None:
        yield from fields(schema.items, f"{path}[]")
    if schema.values is not None:
        yield from fields(schema.values, f"{path}{{}}")


CRD = dict(fields(job_schema().at("spec"), "spec"))
MODELS = dict(fields(structural(RolloutJob).at("spec"), "spec"))
NUMBERS = {path for path, schema in CRD.items() if schema.type in ("integer", "number")}
BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")


def test_there_are_numbers() -> None:
    assert {"spec.samples", "spec.limits.turns", "spec.ttlSecondsAfterFinished"} <= NUMBERS


@pytest.mark.parametrize("path", sorted(NUMBERS))
def test_every_number_has_a_maximum_and_a_minimum(path: str) -> None:
    assert "maximum" in CRD[path].keywords
    assert "minimum" in CRD[path].keywords or path == "spec.parallelism"


def test_every_list_and_every_text_without_an_enumeration_has_a_maximum() -> None:
    unbounded = {
        path
        for path, schema in CRD.items()
        if (schema.type == "array" and "maxItems" not in schema.keywords)
        or (schema.type == "string" and not {"maxLength", "enum"} & schema.keywords.keys())
    }
    assert unbounded <= {
        "spec.sandbox.kodo.kubeconfig",  # kodo is refused on a cluster
        "spec.sandbox.kodo.path",
        "spec.sandbox.local.images",  # so are local sandboxes
    }


def test_the_models_have_the_bounds_of_the_cluster() -> None:
    for path, schema in CRD.items():
        if path in MODELS and path != "spec.extensions[].sha256":  # its pattern bounds it
            mine = {name: MODELS[path].keywords.get(name) for name in BOUNDS}
            assert mine == {name: schema.keywords.get(name) for name in BOUNDS}, path


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("samples", 10**12, "spec.samples: must be at most 10000, found 1000000000000"),
        ("samples", 10_001, "spec.samples: must be at most 10000, found 10001"),
        ("parallelism", 10**9, "spec.parallelism: must be at most 10000"),
        ("limits", {"episodeSeconds": 1e300}, "must be at most 2592000, found 1e+300"),
        ("ttlSecondsAfterFinished", 10**12, "must be at most 31536000"),
        ("sampling", {"seed": 2**53 + 1}, "must be at most 9007199254740992"),
        ("dataset", {"releasePairs": {"names": ["a"] * 257}}, "must have at most 256 items"),
        ("agent", {"systemPrompt": "a" * 65_537}, "must have at most 65536 characters"),
    ],
)
def test_a_message_says_the_maximum(field: str, value: object, message: str) -> None:
    (problem,) = problems(GOOD, f"spec.{field}={json.dumps(value)}")
    assert message in problem


def test_the_most_samples_are_accepted() -> None:
    assert parsed(GOOD, "spec.samples=10000").spec.samples == 10**4


@pytest.mark.parametrize("value", [float("nan"), -float("inf"), "a\0b", "\ud800"])
def test_parameters_from_python_are_held_to_what_a_job_file_can_say(value: object) -> None:
    with pytest.raises(ValidationError, match=r"x\.0\.y"):
        Use(use="a", with_={"x": ({"y": value},)})


def test_parameters_that_hold_themselves_are_refused() -> None:
    value = list[object]()
    value.append(value)
    with pytest.raises(ValidationError, match="it holds itself"):
        Use(use="a", with_={"x": value})
