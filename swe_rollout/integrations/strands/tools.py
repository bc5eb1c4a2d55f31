"""Strands' tools as the policy sees them, and as its calls are checked.

The prompt shows a tool's schema unchanged. A call is checked against as much of it as is possible
in time linear in the call; references, patterns and the like are left to the tool itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from swe_rollout.agent.parsers.strict_json import is_shallow
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.declared import (
    DeclaredSpec,
    require_checkable,
    require_no_controls,
)
from swe_rollout.errors import UsageError

_MAX_SHOWN: Final = 128
"""How many levels of a schema are shown: twice what Strands allows a tool to have."""


@dataclass(frozen=True, slots=True)
class StrandsTool(DeclaredSpec):
    """A tool of the agent."""

    shown: Mapping[str, object] = field(kw_only=True, compare=False)
    """The JSON schema of the tool's arguments as Strands has it."""

    def function(self) -> dict[str, object]:
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.shown),
            },
        }


def read_tools(
    specs: Sequence[Mapping[str, object]], controls: Iterable[str]
) -> tuple[StrandsTool, ...]:
    """Read Strands' tool specs.

    Raises UsageError for a tool without a schema, ExtensionError for one whose text contains one of
    the model's control tokens.
    """
    tools = tuple(map(_read, specs))
    for tool in tools:
        # This applies to what is shown, not only to what is checked.
        whole = Arguments(dict(tool.shown), tool.arguments.validator)
        require_no_controls((replace(tool, schema=whole),), controls)
    return tools


def _read(spec: Mapping[str, object]) -> StrandsTool:
    match spec:
        case {"name": str(name), "description": str(text), "inputSchema": {"json": dict(schema)}}:
            if not is_shallow(schema, _MAX_SHOWN):
                raise UsageError(f"the schema of {name[:80]!r} is over {_MAX_SHOWN} levels deep")
            return StrandsTool(name, text, schema=_arguments(schema), shown=schema)
        case _:
            raise UsageError(
                f"the tool {str(spec.get('name'))[:80]!r} can't be shown to the model",
                why="a tool has a name, a description and the JSON schema of its input",
                fix="write the tool with Strands' @tool",
            )


def _arguments(schema: Mapping[str, object]) -> Arguments:
    """Return the part of a schema that is checked: each argument's own schema, where possible."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return Arguments.of({"type": "object", "additionalProperties": True})
    return Arguments.of(
        {
            "type": "object",
            "properties": {
                str(name): each if isinstance(each, dict) and _is_checkable(each) else {}
                for name, each in properties.items()
            },
            "required": [each for each in _names(schema.get("required")) if each in properties],
            "additionalProperties": schema.get("additionalProperties") not in (None, False),
        }
    )


def _is_checkable(schema: Mapping[str, object]) -> bool:
    """Whether a schema is valid and has only keywords that can be checked fast."""
    try:
        require_checkable(schema)
        Arguments.of({"type": "object", "properties": {"it": dict(schema)}})
    except ValueError:
        return False
    return True


def _names(value: object) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()
