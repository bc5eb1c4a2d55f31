"""Schemas of arguments: what they refuse in a call, and how they type plain text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.agent.parsers.base import typed
from swe_rollout.agent.tools.arguments import Arguments
from unit.agent.schema_tool import schema_tool

STEP = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("schema", "arguments", "words"),
    [
        ({"properties": {"a": {"minimum": 3}}}, {"a": 2}, "'a' is wrong"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": 1}, "a string or null"),
        ({"properties": {"a": STEP}}, {"a": {}}, "'n' is a required property"),
        ({"properties": {"a": {"items": STEP}}}, {"a": [{"n": 1}, {"n": "x"}]}, "'a' is wrong"),
        ({"properties": {"a": {}}, "required": ["a"]}, {}, "'a' is missing"),
        ({"properties": {"a": {}}}, {"b": 1}, "no argument 'b', it takes a"),
        ({"properties": {}}, {"b": 1}, "it takes none"),
        ({"properties": {"a": {"enum": [1, 2]}}}, {"a": 3}, "one of 1, 2"),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 3.0}, "must be an integer"),
        (
            {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
            {"a": 1},
            "strings",
        ),
        ({"properties": {"a": {}}, "minProperties": 1}, {}, "the arguments are wrong"),
        ({"properties": {"a": {}}}, {"a": 2**63}, "64 bits"),
        ({"properties": {"a": {}}}, {"a": [{"b": 1e999}]}, "64 bits"),
        ({}, {"b": 2**63}, "64 bits"),
    ],
)
def test_a_violation_of_the_schema_is_worded_for_the_policy(
    schema: dict[str, object], arguments: dict[str, object], words: str
) -> None:
    (problem,) = Arguments.of(schema).problems(arguments)
    assert words in problem


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": None}),
        ({"properties": {"a": {}}, "additionalProperties": True}, {"b": 1}),
        ({"type": "object"}, {"b": 1}),
        ({"properties": {"a": {"oneOf": [{"type": "integer"}, STEP]}}}, {"a": {"n": 1}}),
    ],
)
def test_a_call_within_the_schema_has_no_problems(
    schema: dict[str, object], arguments: dict[str, object]
) -> None:
    assert Arguments.of(schema).problems(arguments) == []


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", {"type": "string"}, "12"),
        ("12", {}, "12"),
        ("12", {"type": "integer"}, 12),
        ("12", {"type": ["string", "null"]}, "12"),
        ("null", {"type": ["string", "null"]}, None),
        ("12", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, 12),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
        ("1.5", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "1.5"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("True", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, "yes"),
        (" 12 ", {"type": "number"}, 12),
    ],
)
def test_plain_text_is_typed_as_the_schema_says(
    text: str, schema: dict[str, object], value: object
) -> None:
    found = typed(text, "a", schema_tool(a=schema))
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "type object"),
        ({"required": 3}, "not a JSON schema"),
        ({"properties": {"a": {"pattern": "["}}}, "regex"),
        ({"properties": {"a": {"$ref": "http://x/y"}}}, "references"),
    ],
)
def test_what_is_no_schema_of_an_object_is_refused(schema: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Arguments.of(schema)


VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 3.0, 2**70, float("inf"), "", "a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=5,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(
                ["string", "integer", "number", "boolean", "null", "array", ["string", "null"]]
            ),
            "enum": st.lists(VALUES, min_size=1, max_size=2),
            "minLength": st.just(1),
        },
    ),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("ab"), inner),
            },
            optional={
                "required": st.lists(st.sampled_from("ab"), unique=True),
                "additionalProperties": st.booleans(),
            },
        )
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from("ab"), SCHEMAS), st.data())
def test_a_plain_schema_is_checked_as_the_validator_checks_it(
    properties: dict[str, dict[str, object]], data: st.DataObject
) -> None:
    plain: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": list(properties)[:1],
    }
    # A keyword without a meaning, which only the validator knows.
    by_validator = Arguments.of({**plain, "$comment": ""})

    for given_arguments in data.draw(st.lists(st.dictionaries(st.sampled_from("ab"), VALUES))):
        problems = by_validator.problems(given_arguments)
        assert Arguments.of(plain).problems(given_arguments) == problems
