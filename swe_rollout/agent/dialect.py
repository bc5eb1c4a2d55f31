"""Dialects: the form of messages that a template needs, and the messages in that form.

Conversations are plain dicts only here and in `template`, because templates read nothing else.
`template_probe` finds the dialect of a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from swe_rollout.agent.call_text import stands_in_words, write_calls, written_result
from swe_rollout.agent.family import Family
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import ToolCall

_MAX_EARLIER: Final = 999


class Quoting(Enum):
    """How a template escapes text from outside."""

    RAW = "as it is"
    TRIMMED = "without white space at its ends"
    JSON = "as the inside of a JSON string"

    def apply(self, text: str) -> str:
        """Return the text as the template would write it."""
        match self:
            case Quoting.RAW:
                return text
            case Quoting.TRIMMED:
                return text.strip()
            case Quoting.JSON:
                return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of messages that a template needs, found by `agent.template_probe`."""

    family: Family
    arguments_as_text: bool = False
    """Whether the template takes arguments as JSON text, not as a mapping."""
    speaks_with_calls: bool = True
    """Whether a turn with calls may contain text too."""
    silent_content: str | None = None
    """The content of a turn that may not contain text."""
    one_call: bool = False
    """Whether the template rejects or omits all calls of a turn but the first."""
    has_system: bool = True
    """Whether the template accepts a system message."""
    moves_system: bool = False
    """Whether the template omits the system message once a turn follows."""
    moves_prompt: bool = False
    """Whether the template changes the prompt once a turn follows, such as the place of tools or an
    instruction after the last message. The prompt stays as it was sent."""
    writes_tools: bool = True
    """Whether the template writes the tools' schemas; if not, the system message gets the family's
    own text, as its vendor documents."""
    user: Quoting = Quoting.RAW
    result: Quoting = Quoting.RAW
    calls_in_words: str | None = None
    """The format of calls that are part of a turn's text, if the template does not write calls."""
    names_in_metadata: bool = False
    """Whether a call is a message of its own, with its name as metadata, and its result an
    `observation`."""
    results_as_user: bool = False
    """Whether results go into a user message because the template has no role for them."""
    numbers_results: bool = False
    """Whether the template numbers calls over the conversation; the policy's ids are numbers."""

    def bodies(self, results: Sequence[str], messages: Sequence[str]) -> list[str]:
        """Return results and the user's messages as the template would write them."""
        return [*map(self.result.apply, results), *map(self.user.apply, messages)]


def messages(first: Sequence[Message], contents: Sequence[str]) -> list[dict[str, object]]:
    """Return the first messages with their contents replaced by `contents`."""
    pairs = zip(first, contents, strict=True)
    return [{"role": message.role.value, "content": content} for message, content in pairs]


def assistant_message(
    content: str, calls: Sequence[ToolCall], dialect: Dialect, *, reasoning: str = ""
) -> dict[str, object]:
    """Return a turn of the policy, with as much of an unparsed call as is known."""
    if calls and dialect.calls_in_words is not None:
        written = write_calls(dialect.calls_in_words, calls)
        content, calls = f"{content}\n{written}" if content else written, ()
    message: dict[str, object] = {"role": "assistant", "content": content}
    if calls and dialect.names_in_metadata:
        written = json.dumps(calls[0].arguments, ensure_ascii=False)
        return {"role": "assistant", "metadata": name_of(calls[0]), "content": written}
    if calls:
        if not dialect.speaks_with_calls:
            message["content"] = dialect.silent_content
        message["tool_calls"] = [_tool_call(each, at, dialect) for at, each in enumerate(calls)]
    return message | ({"reasoning_content": reasoning} if reasoning else {})


def _tool_call(call: ToolCall, index: int, dialect: Dialect) -> dict[str, object]:
    return {
        "id": id_of(call, index, dialect),
        "type": "function",
        "function": {"name": name_of(call), "arguments": _arguments(call, dialect)},
    }


def result_messages(
    calls: Sequence[ToolCall], results: Sequence[str], dialect: Dialect
) -> list[dict[str, object]]:
    """Return the results of calls in order, as one message if they go into a user message."""
    if dialect.results_as_user:
        write = written_result if stands_in_words(dialect.calls_in_words) else _tool_response
        return [{"role": "user", "content": "\n".join(map(write, results))}]
    return [
        {
            "role": "observation" if dialect.names_in_metadata else "tool",
            "tool_call_id": id_of(call, index, dialect),
            "name": name_of(call),
            "content": result,
        }
        for index, (call, result) in enumerate(zip(calls, results, strict=True))
    ]


def _tool_response(result: str) -> str:
    return f"<tool_response>\n{result}\n</tool_response>"


def answer_messages(
    calls: Sequence[ToolCall], results: Sequence[str], messages: Sequence[str], dialect: Dialect
) -> list[dict[str, object]]:
    """Return the results of calls, followed by the user's messages.

    If results go into a user message too, all are one message: templates want alternating roles.
    """
    answered = result_messages(calls, results, dialect) if calls else []
    if answered and messages and dialect.results_as_user:
        messages = ["\n".join([*(str(each["content"]) for each in answered), *messages])]
        answered = []
    for text in messages:
        answered.append({"role": "user", "content": text})
    return answered


def turn_messages(
    content: str, calls: Sequence[ToolCall], results: Sequence[str], dialect: Dialect
) -> list[dict[str, object]]:
    """Return a turn of the policy, then the results of its calls."""
    said = assistant_message(content, calls, dialect)
    return [said, *result_messages(calls, results, dialect)]


def _arguments(call: ToolCall, dialect: Dialect) -> object:
    if dialect.arguments_as_text:
        return json.dumps(call.arguments, ensure_ascii=False)
    return call.arguments


def earlier_messages(calls: Sequence[ToolCall], dialect: Dialect) -> list[dict[str, object]]:
    """Return a turn with as many calls as came before, for a template that numbers them."""
    first = calls[0].id if calls else ""
    if not dialect.numbers_results or not re.fullmatch(r"\d{1,3}", first):
        return []
    count = min(int(first), _MAX_EARLIER)
    before = [replace(calls[0], arguments={}, id=f"earlier{index}") for index in range(count)]
    return turn_messages("", before, [""] * count, dialect) if count else []


def name_of(call: ToolCall) -> str:
    """Return the name of a call, or `invalid` for one that could forge a token."""
    return call.name if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", call.name) else "invalid"


def id_of(call: ToolCall, index: int, dialect: Dialect) -> str:
    """Return the id of a call: the policy's own if it is plain, else a generated one."""
    if re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", call.id):
        return call.id
    return dialect.family.call_id.format(name=name_of(call), index=index)


def named_forms(
    calls: Sequence[ToolCall], tools: Sequence[ToolSpec], dialect: Dialect
) -> list[list[ToolCall]]:
    """Return the calls without arguments in three forms: unchanged, with our ids, with known tools.

    Only the number of calls in the last form comes from the policy, so every template that passed
    its probe renders it. A form that is equal to a later one is left out.
    """
    bare = [replace(call, name=name_of(call), arguments={}) for call in calls]
    known = {tool.name for tool in tools}
    some = tools[0].name if tools else "invalid"
    tamed = [call if call.name in known else replace(call, name=some) for call in bare]
    forms = [
        [replace(call, id=id_of(call, index, dialect)) for index, call in enumerate(form)]
        for form in (bare, _nameless(bare), _nameless(tamed))
    ]
    written = [[(call.name, call.id) for call in form] for form in forms]
    return [form for at, form in enumerate(forms) if written[at] not in written[at + 1 :]]


def _nameless(calls: Sequence[ToolCall]) -> list[ToolCall]:
    return [replace(call, id="") for call in calls]
