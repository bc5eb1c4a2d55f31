"""Checks of calls that are JSON, or whose arguments are; shared by several grammars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from swe_rollout.agent.parsers.base import checked, not_run
from swe_rollout.agent.parsers.strict_json import JsonEndsError, read_json
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall


def call_of_object(
    value: object,
    *,
    arguments_key: str,
    tools: Sequence[ToolSpec],
    raw: str,
    name_key: str = "name",
    id_key: str | None = None,
) -> ToolCall:
    """Read a call from an object with a name, its arguments and, in some grammars, an id."""
    match value:
        case dict() if (name := value.get(name_key)) and isinstance(name, str):
            rest = {key: each for key, each in value.items() if key != name_key}
            call_id = rest.pop(id_key, "") if id_key else ""
            arguments = rest.pop(arguments_key, None)
            if not isinstance(call_id, str) or (rest and not isinstance(arguments, str)):
                problem = not_run(f"it may have no keys but {name_key} and {arguments_key}")
                return ToolCall(CallStatus.MALFORMED, raw, name, problem=problem)
            return replace(
                call_of_arguments(name, arguments, key=arguments_key, tools=tools, raw=raw),
                id=call_id,
            )
        case dict():
            problem = not_run(f'"{name_key}" must be the name of a tool')
            return ToolCall(CallStatus.MISSING_NAME, raw, problem=problem)
        case _:
            problem = not_run(f"it must be a JSON object with {name_key} and {arguments_key}")
            return ToolCall(CallStatus.MALFORMED, raw, problem=problem)


def call_of_arguments(
    name: str, arguments: object, *, key: str, tools: Sequence[ToolSpec], raw: str
) -> ToolCall:
    """Read a call of `name`; arguments in a JSON string, or none at all, are malformed."""
    if isinstance(arguments, dict):
        return checked(name, arguments, tools=tools, raw=raw)
    problem = f'the call of {name[:80]} was not run: "{key}" must be a JSON object'
    return ToolCall(CallStatus.BAD_ARGUMENTS, raw, name, problem=problem)


def status_of(error: ValueError) -> CallStatus:
    """Tell JSON that was cut short from JSON that is wrong."""
    return CallStatus.UNCLOSED if isinstance(error, JsonEndsError) else CallStatus.INVALID_JSON


def call_of_text(name: str, text: str, *, tools: Sequence[ToolSpec], raw: str) -> ToolCall:
    """Read a call of `name` whose arguments are one JSON object, the whole of `text`."""
    try:
        value = read_json(text).whole
    except ValueError as error:
        return ToolCall(CallStatus.INVALID_JSON, raw, name, problem=not_run(str(error)))
    return call_of_arguments(name, value, key="arguments", tools=tools, raw=raw)
