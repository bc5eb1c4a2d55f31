"""ChatTemplate: a model's own template, as text; and where text from outside goes into it.

Token ids are `agent.renderer`'s. Conversations are plain dicts here alone, because templates read
nothing else.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Protocol

from swe_rollout.agent.encoding import Backend, Body, Scaffold
from swe_rollout.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.agent.prompts import Message
    from swe_rollout.agent.tools.base import ToolSpec
    from swe_rollout.trajectory import ToolCall


class Pretrained(Protocol):
    """What is used of a tokenizer of transformers."""

    @property
    def backend_tokenizer(self) -> Backend:
        """The vocabulary."""
        ...

    @property
    def chat_template(self) -> str | dict[str, str] | None:
        """The source of the template, or of several by name."""
        ...

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text."""
        ...

    def __len__(self) -> int:
        """How many ids there are."""
        ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, object]],
        *,
        tools: list[dict[str, object]] | None,
        tokenize: bool,
        add_generation_prompt: bool,
    ) -> object:
        """The rendered text."""
        ...


class ChatTemplate:
    """Renders conversations as the model was trained to read them."""

    def __init__(self, tokenizer: Pretrained) -> None:
        self._tokenizer = tokenizer

    @property
    def source(self) -> str:
        """The template itself, for a fingerprint."""
        return json.dumps(self._tokenizer.chat_template)

    def render(
        self, conversation: list[dict[str, object]], tools: Sequence[ToolSpec], *, prompted: bool
    ) -> str:
        """The whole conversation; `prompted` adds the beginning of the policy's next turn."""
        text = self._tokenizer.apply_chat_template(
            conversation,
            tools=[tool.function() for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=prompted,
        )
        if not isinstance(text, str):
            raise InternalError(f"a chat template gave {type(text).__name__} instead of text")
        return text

    def added(
        self, calls: Sequence[ToolCall], results: Sequence[str], tools: Sequence[ToolSpec]
    ) -> str:
        """What the template writes for the results of `calls`, and for the turn that follows.

        A stand-in conversation holds the real calls, so that names and ids fit; all results are
        rendered at once, because templates join neighbouring ones.
        """
        base = [*_STAND_IN, assistant_message("ok", calls[: len(results)], reasoning=" ")]
        before = self.render(base, tools, prompted=False)
        after = self.render([*base, *result_messages(calls, results)], tools, prompted=True)
        if not after.startswith(before):
            raise InternalError(
                "the chat template rewrites a turn once its results are there",
                why=f"{before[-80:]!r} is not kept",
            )
        return after[len(before) :]


# A user message, because some templates refuse a conversation that has none.
_STAND_IN: tuple[dict[str, object], ...] = (
    {"role": "system", "content": "system"},
    {"role": "user", "content": "task"},
)


def messages(first: Sequence[Message], contents: Sequence[str]) -> list[dict[str, object]]:
    """The first messages, with `contents` in place of their own."""
    pairs = zip(first, contents, strict=True)
    return [{"role": message.role.value, "content": content} for message, content in pairs]


def assistant_message(
    content: str, calls: Sequence[ToolCall], *, reasoning: str = ""
) -> dict[str, object]:
    """A turn of the policy. A call that did not parse takes part with what is known of it."""
    message: dict[str, object] = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": _call_id(index),
                "type": "function",
                "function": {"name": call.name or "invalid", "arguments": call.arguments},
            }
            for index, call in enumerate(calls)
        ],
    }
    return message | ({"reasoning_content": reasoning} if reasoning else {})


def result_messages(calls: Sequence[ToolCall], results: Sequence[str]) -> list[dict[str, object]]:
    """The results of calls, in order."""
    return [
        {
            "role": "tool",
            "tool_call_id": _call_id(index),
            "name": call.name or "invalid",
            "content": result,
        }
        for index, (call, result) in enumerate(zip(calls, results, strict=True))
    ]


def _call_id(index: int) -> str:
    # Nine letters and digits: the one form that every template takes.
    return f"call{index:05}"


class Bodies:
    """Texts from outside: they are not rendered, a stand-in that nobody can guess is."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._nonce = secrets.token_hex(16)

    @property
    def stand_ins(self) -> list[str]:
        """What is rendered in place of each text."""
        return [f"body{self._nonce}x{index}x" for index in range(len(self._texts))]

    def cut(self, rendered: str) -> list[Scaffold | Body]:
        """The rendered text with the real texts in their places."""
        pieces = re.split(rf"body{self._nonce}x(\d+)x", rendered)
        found = [int(index) for index in pieces[1::2]]
        if found != list(range(len(self._texts))):
            raise InternalError(
                "the chat template does not write each text once, in order",
                why=f"of {len(self._texts)} texts it wrote {found}",
            )
        parts: list[Scaffold | Body] = [Scaffold(pieces[0])]
        for index, scaffold in zip(found, pieces[2::2], strict=True):
            parts += [Body(self._texts[index]), Scaffold(scaffold)]
        return parts
