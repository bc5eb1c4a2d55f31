"""Tools that a server lists, as a job pins them."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")

from mcp_types import Tool

from swe_rollout.agent.tools.mcp.options import PinnedTool
from swe_rollout.agent.tools.mcp.pin import pinned


def tool(schema: dict[str, object], name: str = "a", description: str | None = "A.") -> Tool:
    return Tool(name=name, description=description, input_schema=schema)


def test_references_are_written_out_and_other_keywords_dropped() -> None:
    schema: dict[str, object] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}, "uniqueItems": True},
            "path": {"type": "string", "pattern": "(a+)+$", "description": "Where."},
        },
        "$defs": {"Edit": {"type": "object", "properties": {"old": {"type": "string"}}}},
    }

    (found,), problems = pinned([tool(schema)], "")

    assert problems == []
    assert found["inputSchema"] == {
        "type": "object",
        "properties": {
            "edits": {
                "type": "array",
                "items": {"type": "object", "properties": {"old": {"type": "string"}}},
            },
            "path": {"type": "string", "description": "Where."},
        },
    }
    assert PinnedTool.model_validate(found).spec("").name == "a"


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (tool({"properties": {"x": {"$ref": "#"}}}), "refers to itself"),
        (tool({"properties": {"x": {"$ref": "https://a/b"}}}), "another document"),
        (tool({"properties": {"x": {"$ref": "#/$defs/no"}}}), "is not there"),
        (tool({}, name="a b"), "no tool's name"),
        (tool({}, description="x" * 20_000), "characters"),
        (tool({"type": "array"}), "type object"),
    ],
)
def test_a_tool_that_can_t_be_offered_is_left_out_with_the_reason(listed: Tool, why: str) -> None:
    found, (problem,) = pinned([listed, tool({}, name="b")], "")

    assert why in problem
    assert [each["name"] for each in found] == ["b"]


def test_a_schema_that_doubles_by_references_is_left_out() -> None:
    definitions = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(40)} | {
        "L40": {"type": "string"}
    }
    schema = {"properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": definitions}

    found, (problem,) = pinned([tool(schema)], "")

    assert found == []
    assert "too large" in problem


def test_a_tool_without_a_description_has_its_title_or_name() -> None:
    (found,), _ = pinned([tool({}, description=None)], "")
    assert found["description"] == "a"
