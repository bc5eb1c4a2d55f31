"""The input of a chat template: the form of tools and messages, and the date.

Most templates take a tool as `{"type": "function", "function": {…}}` and a content as text. Some
take only the value of `function`, as SGLang passes it, and those of multimodal models take contents
as lists of parts. Used by `template`.

Templates read the clock with `strftime_now`. Workers on both sides of midnight, and a worker that
resumes a job a week later, must render the same prompt, so the day is part of the job. A macro of
the same name, prepended to the template, knows only that day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Final

DEFAULT_DAY: Final = date(2026, 1, 1)
"""The day, unless the job names one."""
_ASKS: Final = "strftime_now"
_DIRECTIVES: Final = (
    *("%-d", "%-m", "%-H", "%-I", "%-M", "%-S", "%-j", "%Y", "%y", "%m", "%B", "%b", "%h", "%d"),
    *("%e", "%A", "%a", "%w", "%u", "%j", "%H", "%I", "%M", "%S", "%p", "%f", "%z", "%Z", "%F"),
    *("%T", "%D", "%R", "%c", "%x", "%X", "%U", "%W", "%V", "%G", "%s", "%n", "%t"),
)


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """One form of a template's input."""

    bare_tools: bool = False
    """Whether a tool is given as only its name, description and parameters."""
    content_parts: bool = False
    """Whether a content is a list of parts, here with one text part."""

    def tools(self, functions: Sequence[dict[str, object]]) -> list[dict[str, object]]:
        """Return tools in this form; `functions` have the form of chat completion APIs."""
        if not self.bare_tools:
            return list(functions)
        inner = (function.get("function") for function in functions)
        return [each for each in inner if isinstance(each, dict)]

    def conversation(self, messages: Sequence[dict[str, object]]) -> list[dict[str, object]]:
        """Return messages in this form; contents of `messages` are strings or missing."""
        return [*map(self._message, messages)] if self.content_parts else list(messages)

    @staticmethod
    def _message(message: dict[str, object]) -> dict[str, object]:
        content = message.get("content")
        if content is None:
            return message
        return message | {"content": [{"type": "text", "text": content}]}


_FORMS: Final = (
    TemplateInput(),
    TemplateInput(bare_tools=True),
    TemplateInput(content_parts=True),
    TemplateInput(bare_tools=True, content_parts=True),
)
_ASKED: Final = "Asked7d1f30."
_SAID: Final = "Said0b64ce."
_TOOL: Final[dict[str, object]] = {
    "type": "function",
    "function": {
        "name": "trial_tool",
        "description": "Does something.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}


def find_input(
    render: Callable[[list[dict[str, object]], list[dict[str, object]]], str],
    errors: tuple[type[Exception], ...],
) -> TemplateInput:
    """Return the first form in which `render` writes the text of user and policy, or the usual one.

    `render` takes messages and tools, and raises one of `errors` for unsupported input.
    """
    return next((form for form in _FORMS if _is_taken(form, render, errors)), _FORMS[0])


def _is_taken(
    form: TemplateInput,
    render: Callable[[list[dict[str, object]], list[dict[str, object]]], str],
    errors: tuple[type[Exception], ...],
) -> bool:
    for conversation in _conversations():
        try:
            text = render(form.conversation(conversation), form.tools([_TOOL]))
        except errors:
            continue
        return _ASKED in text and _SAID in text
    return False


def _conversations() -> Iterator[list[dict[str, object]]]:
    """Yield a conversation with a system message, then one for templates that take none."""
    turns: list[dict[str, object]] = [
        {"role": "user", "content": _ASKED},
        {"role": "assistant", "content": _SAID},
        {"role": "user", "content": "And now?"},
    ]
    yield [{"role": "system", "content": "You help."}, *turns]
    yield turns


def pinned_to(day: date, source: str | dict[str, str] | None) -> dict[str, object]:
    """Return variables that pin a template, or several by name; empty if it reads no clock."""
    match source:
        case str() if _ASKS in source:
            return {"chat_template": _macro(day) + source}
        case dict():
            # Of several, the one for tools is used, and the default one for prompts without tools.
            chosen = source.get("tool_use", source.get("default", ""))
            return pinned_to(day, chosen)
        case _:
            return {}


def _macro(day: date) -> str:
    moment = datetime.combine(day, time(), UTC)
    # Midnight UTC, in words that do not depend on the locale where it is C, as in workers.
    steps = "".join(
        f" | replace({json.dumps(each)}, {json.dumps(moment.strftime(each))})"
        for each in _DIRECTIVES
    )
    # The newline belongs to the block before it, so the template starts where it did.
    return f"{{% macro {_ASKS}(format) %}}{{{{ format{steps} }}}}{{% endmacro %}}\n"
