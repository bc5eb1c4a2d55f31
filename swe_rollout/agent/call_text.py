"""Write calls as text, for templates that do not render calls themselves.

Some templates copy a turn's text and do not support calls, so the call is part of that text. Where
a template does not support tools at all, the system message describes them and shows an example
call. Only the formats here work with such templates. Used by `dialect` and `renderer`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, runtime_checkable

from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_OF_TEMPLATES: Final = frozenset[str](ToolFormat)
EXAMPLE: Final = ToolCall(CallStatus.OK, "", "TOOL", {"KEY": "VALUE"})


@runtime_checkable
class WrittenFormat(Protocol):
    """A parser that can also write calls, for a format that is part of a turn's text."""

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls in the form that the policy should write; the prompt shows one."""
        ...


def stands_in_words(form: str | None) -> bool:
    """Return whether calls of this format are always part of a turn's text."""
    if form is None or form in _OF_TEMPLATES:
        return False
    return form in CALL_TEXTS or isinstance(parser_for(form), WrittenFormat)


def write_calls(form: str, calls: Sequence[ToolCall]) -> str:
    """Return calls as the policy would write them. Raises KeyError for an unknown format."""
    if form not in CALL_TEXTS and isinstance(own := parser_for(form), WrittenFormat):
        return own.write(calls)
    return CALL_TEXTS[form].write(calls)


def describe_tools(tools: Sequence[ToolSpec], example: str) -> str:
    """Return text for the system message: the tools, and an example call."""
    written = "\n".join(json.dumps(tool.function(), ensure_ascii=False) for tool in tools)
    return (
        f"\n\n# Tools\n\nYou act by calling tools. These are their signatures:\n\n{written}\n\n"
        f"Call a tool in exactly this form, with its own name and arguments:\n\n"
        f"{example}\n\nThe results come in the next message."
    )


def written_call(form: str) -> str:
    """Return the example call for the prompt, with any further notes on the format."""
    return "\n\n".join(filter(None, (write_calls(form, [EXAMPLE]), NOTES.get(form))))


def written_result(text: str) -> str:
    """Return a result in the form used within a user message."""
    return f"Observation:\n{text}"


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def plain_value(value: object) -> str:
    """Return a value as grammars without quotes write it: strings unchanged, the rest as JSON."""
    return value if isinstance(value, str) else _json(value)


@dataclass(frozen=True, slots=True)
class CallText:
    """How a format writes one call and the other calls of the same turn."""

    each: str
    """Format string for one call; its fields are the keys that `fields` returns."""
    value: str = ""
    """Format string for one argument: its key, its value, and whether the value is a string."""
    between: str = ""
    head: str = ""
    tail: str = ""

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return the calls of one turn as text."""
        written = (self.each.format(**self.fields(call, at)) for at, call in enumerate(calls))
        return f"{self.head}{self.between.join(written)}{self.tail}"

    def fields(self, call: ToolCall, at: int) -> dict[str, str]:
        """Return the fields for the format string of a call, given its index in the turn."""
        del at
        arguments = dict(call.arguments)
        tool_named = {"tool_name": call.name, "parameters": arguments}
        python = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return {
            "name": call.name,
            "json": _json(arguments),
            "object": _json({"name": call.name, "arguments": arguments}),
            "parameters": _json({"name": call.name, "parameters": arguments}),
            "tool_named": _json(tool_named),
            "indented": textwrap.indent(_json(tool_named, 4), "    "),
            "python": f"{call.name}({python})",
            "values": "".join(
                self.value.format(key, plain_value(value), _json(isinstance(value, str)))
                for key, value in arguments.items()
            ),
        }

    @classmethod
    def list_of(cls, each: str, opener: str, closer: str = "") -> Self:
        """Return the `CallText` of a format that writes calls as a comma-separated list."""
        return cls(each, between=", ", head=f"{opener}[", tail=f"]{closer}")


_DEEPSEEK: Final = ("\n", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
CALL_TEXTS: Final[Mapping[str, CallText]] = {
    ToolFormat.HERMES: CallText("<tool_call>\n{object}\n</tool_call>", between="\n"),
    ToolFormat.GRANITE: CallText.list_of("{object}", "<|tool_call|>"),
    ToolFormat.LFM2: CallText.list_of("{python}", "<|tool_call_start|>", "<|tool_call_end|>"),
    ToolFormat.PYTHONIC: CallText.list_of("{python}", ""),
    ToolFormat.LLAMA3: CallText("{parameters}", between=";"),
    ToolFormat.REACT: CallText("Action: {name}\nAction Input: {json}", between="\n"),
    ToolFormat.FUNCTOOLS: CallText.list_of("{object}", "functools"),
    ToolFormat.INTERNLM: CallText("<|action_start|><|plugin|>\n{parameters}<|action_end|>"),
    ToolFormat.COMMAND_R: CallText("{indented}", "", ",\n", "Action: ```json\n[\n", "\n]```"),
    ToolFormat.DEEPSEEK_V3: CallText(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json}\n```<｜tool▁call▁end｜>",
        "",
        *_DEEPSEEK,
    ),
    ToolFormat.DEEPSEEK_V31: CallText(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜>", "", *_DEEPSEEK
    ),
    TextFormat.THOUGHT_ACTION: CallText("Action: {python}", between="\n"),
    TextFormat.TOOL_CALL_LINE: CallText("TOOL_CALL: {python}", between="\n"),
    TextFormat.ACTION_JSON: CallText("Action: {parameters}", between="\n"),
    TextFormat.FUNCTION_XML: CallText(
        "<function={name}>\n{values}</function>", "<parameter={}>{}</parameter>\n", "\n"
    ),
}
"""The formats of calls that are part of a turn's text."""
NOTES: Final[dict[str, str]] = {
    TextFormat.THOUGHT_ACTION: "Values are Python literals; `Action Input:` and a JSON object on "
    "the line behind `Action: TOOL` do as well. Stop after the action.",
    TextFormat.TOOL_CALL_LINE: "Values are Python literals: write line breaks in a text as \\n. "
    "The call is all of its line.",
    TextFormat.FUNCTION_XML: "A value is everything between its two tags, as it is, also over "
    "several lines. Write one call, and nothing behind it.",
}
"""Further notes on a format for the model."""
WRITABLE: Final = frozenset(CALL_TEXTS) - frozenset(TextFormat)
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
"""Text in the template or vocabulary that reveals which format the calls in a turn's text have."""
NOT_HERMES: Final = ("<function=", "<arg_key>")
"""What `<tool_call>` is around in a prompt that tells of another format than hermes."""
