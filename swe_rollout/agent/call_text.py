"""Write calls as text, for templates that leave that to the words of a turn.

Some templates write the turns of the policy word by word and know nothing of calls: the call is in
the words. And a template that knows no tools at all is told about them in the system message, with
an example. Only the formats here can be used with such templates. Used by `dialect`, `renderer`.
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
    """A parser that also writes its calls: its format stands in the words of a turn."""

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as the policy is to write them; the prompt shows one."""
        ...


def stands_in_words(form: str | None) -> bool:
    """Whether calls of a format stand in the words of a turn, whatever the template writes."""
    if form is None or form in _OF_TEMPLATES:
        return False
    return form in CALL_TEXTS or isinstance(parser_for(form), WrittenFormat)


def write_calls(form: str, calls: Sequence[ToolCall]) -> str:
    """Return calls as the policy would write them; KeyError where the format is not one of here."""
    if form not in CALL_TEXTS and isinstance(own := parser_for(form), WrittenFormat):
        return own.write(calls)
    return CALL_TEXTS[form].write(calls)


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


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def plain_value(value: object) -> str:
    """Return a value as grammars without quotes write it: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else _json(value)


@dataclass(frozen=True, slots=True)
class CallText:
    """How a format writes calls that stand side by side."""

    each: str
    """One call, as a format string over what `fields` returns."""
    value: str = ""
    """One argument, as a format string over its key, its value and whether the value is text."""
    between: str = ""
    head: str = ""
    tail: str = ""

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return the calls of one turn as text."""
        written = (self.each.format(**self.fields(call, at)) for at, call in enumerate(calls))
        return f"{self.head}{self.between.join(written)}{self.tail}"

    def fields(self, call: ToolCall, at: int) -> dict[str, str]:
        """Return the texts of which a call, at its place in the turn, may be made."""
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
        """Return the text of a format that writes calls as a list, with commas between them."""
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
"""The formats of calls in the words of a turn."""
NOTES: Final[dict[str, str]] = {
    TextFormat.THOUGHT_ACTION: "Values are Python literals; `Action Input:` and a JSON object on "
    "the line behind `Action: TOOL` do as well. Stop after the action.",
    TextFormat.TOOL_CALL_LINE: "Values are Python literals: write line breaks in a text as \\n. "
    "The call is all of its line.",
    TextFormat.FUNCTION_XML: "A value is everything between its two tags, as it is, also over "
    "several lines. Write one call, and nothing behind it.",
}
"""What else a model must know of a format."""
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
"""What a template says to its model, or its vocabulary has, where the words hold the calls."""
