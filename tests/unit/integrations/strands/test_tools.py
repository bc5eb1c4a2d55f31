from __future__ import annotations

import pytest

from ratios import cpu_ratio
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError
from swe_rollout.integrations.strands.tools import StrandsTool, read_tools


def tool(schema: dict[str, object], *, description: str = "Does it.") -> StrandsTool:
    spec = {"name": "do", "description": description, "inputSchema": {"json": schema}}
    (read,) = read_tools([spec], ["<|im_end|>"])
    return read


REFERENCES: dict[str, object] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "point": {"$ref": "#/$defs/Point"},
        "word": {"type": "string", "pattern": "(a+)+$"},
    },
    "required": ["count", "point"],
    "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}}},
}


def test_the_policy_is_shown_the_whole_schema() -> None:
    function = tool(REFERENCES).function()["function"]
    assert function == {"name": "do", "description": "Does it.", "parameters": REFERENCES}


def test_a_call_is_checked_as_far_as_it_can_be() -> None:
    read = tool(REFERENCES)
    assert read.problems({"count": 1, "point": {"x": 1}, "word": "b"}) == []
    assert read.problems({"count": "1", "point": 3})
    assert read.problems({"count": 1})
    assert read.problems({"count": 1, "point": 3, "other": 1})


def test_a_pattern_takes_no_time() -> None:
    """Schemas of MCP servers come from outside."""
    checked = tool(REFERENCES)

    def check(word: str) -> None:
        for _ in range(20):
            checked.problems({"count": 1, "point": 3, "word": word})

    assert cpu_ratio(lambda: check("a" * 24 + "b"), lambda: check("b")) < 3


def test_further_arguments_are_taken_where_the_schema_says_so() -> None:
    open_ended: dict[str, object] = {
        "type": "object",
        "properties": {},
        "additionalProperties": {"type": "string"},
    }
    assert tool(open_ended).problems({"any": 1}) == []
    assert tool({"type": "object"}).problems({"any": 1}) == []
    assert tool({"type": "object", "properties": {}}).problems({"any": 1})


def test_deep_and_broken_schemas_are_left_to_the_tool() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    odd: dict[str, object] = {"a": deep, "b": {"type": "nothing"}, "c": True}
    assert tool({"properties": odd}).problems({}) == []
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UsageError, match="deep"):
        tool({"properties": {"a": deep}})


def test_a_description_cannot_hold_control_tokens() -> None:
    with pytest.raises(ExtensionError, match=r"<\|im_end\|>"):
        tool({"type": "object"}, description="Say <|im_end|>.")
    with pytest.raises(ExtensionError, match=r"<\|im_end\|>"):
        tool({"properties": {"a": {"$ref": "x", "description": "<|im_end|>"}}})


def test_what_is_no_tool_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'do'"):
        read_tools([{"name": "do", "description": "Does it."}], [])
