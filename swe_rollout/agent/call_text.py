"""Write calls as text, for templates that leave that to the words of a turn.

Some templates write the turns of the policy word by word and know nothing of calls: the call is in
the words. And a template that knows no tools at all is told about them in the system message, with
an example. Only the formats here can be used with such templates. Used by `dialect`, `renderer`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_OF_TEMPLATES: Final = frozenset[str](ToolFormat)
EXAMPLE: Final = ToolCall(CallStatus.OK, "", "TOOL", {"KEY": "VALUE"})


@runtime_checkable
class WrittenFormat(Protocol):
    """A parser that also writes its calls: its format stands in the words of a turn."""

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as the policy is to write them; the prompt shows one."""
        ...


def stands_in_words(form: str | None) -> bool:
    """Whether calls of a format stand in the words of a turn, whatever the template writes."""
    if form is None or form in _OF_TEMPLATES:
        return False
    return form in _WRITERS or isinstance(parser_for(form), WrittenFormat)


def write_calls(form: str, calls: Sequence[ToolCall]) -> str:
    """Return calls as the policy would write them; KeyError where the format is not one of here."""
    if form not in _WRITERS and isinstance(own := parser_for(form), WrittenFormat):
        return own.write(calls)
    return _WRITERS[form](calls)


def describe_tools(tools: Sequence[ToolSpec], example: str) -> str:
    """Return text for the system message: the tools, and how to call one, by an example."""
    written = "\n".join(json.dumps(tool.function(), ensure_ascii=False) for tool in tools)
    return (
        f"\n\n# Tools\n\nYou act by calling tools. These are their signatures:\n\n{written}\n\n"
        f"Call a tool in exactly this form, with its own name and arguments:\n\n"
        f"{example}\n\nThe results come in the next message."
    )


def written_call(form: str) -> str:
    """Return a call as the prompt shows it, with what else a model must know of the format."""
    return "\n\n".join(filter(None, (write_calls(form, [EXAMPLE]), NOTES.get(form))))


def written_result(text: str) -> str:
    """Return a result as a message of the user has it."""
    return f"Observation:\n{text}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hermes(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"<tool_call>\n{_object(call, 'arguments')}\n</tool_call>" for call in calls)


def _object(call: ToolCall, arguments: str) -> str:
    return _json({"name": call.name, arguments: dict(call.arguments)})


def _granite(calls: Sequence[ToolCall]) -> str:
    return f"<|tool_call|>[{', '.join(_object(call, 'arguments') for call in calls)}]"


def _python(calls: Sequence[ToolCall]) -> str:
    return f"[{', '.join(map(_python_call, calls))}]"


def _lfm2(calls: Sequence[ToolCall]) -> str:
    return f"<|tool_call_start|>{_python(calls)}<|tool_call_end|>"


def _llama3(calls: Sequence[ToolCall]) -> str:
    return ";".join(_object(call, "parameters") for call in calls)


def _internlm(calls: Sequence[ToolCall]) -> str:
    return "".join(
        f"<|action_start|><|plugin|>\n{_object(call, 'parameters')}<|action_end|>" for call in calls
    )


def _functools(calls: Sequence[ToolCall]) -> str:
    return f"functools[{', '.join(_object(call, 'arguments') for call in calls)}]"


def _command_r(calls: Sequence[ToolCall]) -> str:
    written = [{"tool_name": call.name, "parameters": dict(call.arguments)} for call in calls]
    return f"Action: ```json\n{json.dumps(written, ensure_ascii=False, indent=4)}```"


def _react(calls: Sequence[ToolCall]) -> str:
    return "\n".join(
        f"Action: {call.name}\nAction Input: {_json(dict(call.arguments))}" for call in calls
    )


def _python_call(call: ToolCall) -> str:
    values = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({values})"


def _thought_action(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"Action: {_python_call(call)}" for call in calls)


def _tool_call_line(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"TOOL_CALL: {_python_call(call)}" for call in calls)


def _action_json(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"Action: {_object(call, 'parameters')}" for call in calls)


def _function_xml(calls: Sequence[ToolCall]) -> str:
    written: list[str] = []
    for call in calls:
        values = (
            f"<parameter={key}>{value if isinstance(value, str) else _json(value)}</parameter>\n"
            for key, value in call.arguments.items()
        )
        written.append(f"<function={call.name}>\n{''.join(values)}</function>")
    return "\n".join(written)


def _deepseek(head: str, tail: str) -> Callable[[Sequence[ToolCall]], str]:
    def write(calls: Sequence[ToolCall]) -> str:
        written = "\n".join(
            f"<｜tool▁call▁begin｜>{head.format(call.name)}{_json(dict(call.arguments))}{tail}"
            "<｜tool▁call▁end｜>"
            for call in calls
        )
        return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"

    return write


_WRITERS: Final[dict[str, Callable[[Sequence[ToolCall]], str]]] = {
    ToolFormat.HERMES: _hermes,
    ToolFormat.GRANITE: _granite,
    ToolFormat.LFM2: _lfm2,
    ToolFormat.PYTHONIC: _python,
    ToolFormat.LLAMA3: _llama3,
    ToolFormat.REACT: _react,
    ToolFormat.FUNCTOOLS: _functools,
    ToolFormat.INTERNLM: _internlm,
    ToolFormat.COMMAND_R: _command_r,
    ToolFormat.DEEPSEEK_V3: _deepseek("function<｜tool▁sep｜>{}\n```json\n", "\n```"),
    ToolFormat.DEEPSEEK_V31: _deepseek("{}<｜tool▁sep｜>", ""),
    TextFormat.THOUGHT_ACTION: _thought_action,
    TextFormat.TOOL_CALL_LINE: _tool_call_line,
    TextFormat.ACTION_JSON: _action_json,
    TextFormat.FUNCTION_XML: _function_xml,
}
NOTES: Final[dict[str, str]] = {
    TextFormat.THOUGHT_ACTION: "Values are Python literals; `Action Input:` and a JSON object on "
    "the line behind `Action: TOOL` do as well. Stop after the action.",
    TextFormat.TOOL_CALL_LINE: "Values are Python literals: write line breaks in a text as \\n. "
    "The call is all of its line.",
    TextFormat.FUNCTION_XML: "A value is everything between its two tags, as it is, also over "
    "several lines. Write one call, and nothing behind it.",
}
"""What else a model must know of a format."""
WRITABLE: Final = frozenset(_WRITERS) - frozenset(TextFormat)
"""The formats of templates that `write_calls` knows."""
HINTS: Final[tuple[tuple[str, ToolFormat], ...]] = (
    ("<|tool_call_start|>", ToolFormat.LFM2),
    ("<|tool_list_start|>", ToolFormat.LFM2),
    ("\nList of tools: [", ToolFormat.LFM2),
    ("<|tool_call|>", ToolFormat.GRANITE),
    ("<｜tool▁calls▁begin｜>", ToolFormat.DEEPSEEK_V3),
    ("<tool_call>", ToolFormat.HERMES),
    ("Action Input:", ToolFormat.REACT),
    ("system name=<|plugin|>", ToolFormat.INTERNLM),
    ("formatted as functools[", ToolFormat.FUNCTOOLS),
    ("Write 'Action:' followed by a json-formatted list", ToolFormat.COMMAND_R),
)
"""What a template says to its model, or its vocabulary has, where the words hold the calls."""
