"""The form of input that a chat template takes: of its tools, and of the contents of messages.

Most take a tool as `{"type": "function", "function": {…}}` and a content as text. Some take what is
inside of `function`, as SGLang gives it to them, and those of models with images take contents as
lists of parts. Used by `template`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """One form of input."""

    bare_tools: bool = False
    """Whether a tool is only its name, description and parameters."""
    content_parts: bool = False
    """Whether a content is a list of parts, here of one text."""

    def tools(self, functions: Sequence[dict[str, object]]) -> list[dict[str, object]]:
        """Return tools in this form; `functions` are those of chat completion APIs."""
        if not self.bare_tools:
            return list(functions)
        inner = (function.get("function") for function in functions)
        return [each for each in inner if isinstance(each, dict)]

    def conversation(self, messages: Sequence[dict[str, object]]) -> list[dict[str, object]]:
        """Return messages in this form; `messages` have texts as contents, or none."""
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
    """Return the first form in which `render` writes what user and policy say; else the usual one.

    `render` takes messages and tools, and raises one of `errors` for what the template can't do.
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
