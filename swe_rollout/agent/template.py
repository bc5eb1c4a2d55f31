"""ChatTemplate: render a model's own template as text, with stand-ins for text from outside.

Token ids are made in `agent.renderer`. Conversations are plain dicts only here, because templates
read nothing else.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Final, Protocol

import jinja2
import structlog

from swe_rollout.agent.clock import DEFAULT_DAY, pinned_to
from swe_rollout.agent.dialect import (
    Dialect,
    Quoting,
    answer_messages,
    assistant_message,
    earlier_messages,
    named_forms,
    user_messages,
)
from swe_rollout.agent.encoding import Backend, Body, Scaffold
from swe_rollout.agent.template_input import find_input
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import InternalError
from swe_rollout.types.turn import ToolCall

TEMPLATE_ERRORS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    InternalError,
)
"""Exceptions of a template that is asked for something it can't do: it is a program."""

log = structlog.get_logger()


class Pretrained(Protocol):
    """The part of a tokenizer of transformers that is used here."""

    @property
    def backend_tokenizer(self) -> Backend: ...

    @property
    def chat_template(self) -> str | dict[str, str] | None:
        """The source of the template, or of several by name."""
        ...

    @property
    def eos_token_id(self) -> int | None: ...

    def __len__(self) -> int: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, object]],
        *,
        tools: list[dict[str, object]] | None,
        tokenize: bool,
        add_generation_prompt: bool,
        **template_kwargs: object,
    ) -> object: ...


_RETAIN: Final[dict[str, object]] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "drop_thinking": False,
    "truncate_history_thinking": False,
}
"""Variables by which templates keep the reasoning of earlier turns."""


class ChatTemplate:
    """Renders conversations as the model was trained to read them."""

    def __init__(
        self,
        tokenizer: Pretrained,
        kwargs: Mapping[str, object] | None = None,
        *,
        day: date = DEFAULT_DAY,
    ) -> None:
        """`kwargs` are the variables of the template that a job sets, such as `enable_thinking`.

        `day` is the date that the template is told, whatever the clock says: the workers of a job,
        and those that resume it, render the same prompt.
        """
        self._tokenizer = tokenizer
        pinned = pinned_to(day, tokenizer.chat_template)
        self._kwargs = {**_RETAIN, **(kwargs or {}), **pinned}
        self._set_by_job = dict(kwargs or {})
        self._day = day
        self._shows_tools = True
        self._input = find_input(self._rendered, TEMPLATE_ERRORS)

    def without_tools(self) -> ChatTemplate:
        """Return the same template, which is told of no tools."""
        silent = ChatTemplate(self._tokenizer, self._set_by_job, day=self._day)
        silent._shows_tools = False
        return silent

    @property
    def source(self) -> str:
        """The template and the variables that a job sets, for a fingerprint."""
        given = self._set_by_job
        variables = json.dumps(given, sort_keys=True, default=str) if given else ""
        text = json.dumps(self._tokenizer.chat_template) + variables
        return text + (f"\n{self._day}" if "strftime_now" in text else "")

    def render(
        self, conversation: list[dict[str, object]], tools: Sequence[ToolSpec], *, prompted: bool
    ) -> str:
        """Render a whole conversation; `prompted` adds the start of the policy's next turn."""
        shown = tools if self._shows_tools else ()
        functions = self._input.tools([tool.function() for tool in shown])
        return self._rendered(self._input.conversation(conversation), functions, prompted=prompted)

    def _rendered(
        self,
        conversation: list[dict[str, object]],
        functions: list[dict[str, object]],
        *,
        prompted: bool = False,
    ) -> str:
        told = {"xml_tools": functions} if functions else {}
        text = self._tokenizer.apply_chat_template(
            conversation,
            tools=functions or None,
            tokenize=False,
            add_generation_prompt=prompted,
            **{**told, **self._kwargs},
        )
        if not isinstance(text, str):
            raise InternalError(f"a chat template gave {type(text).__name__} instead of text")
        return text

    def added(
        self,
        calls: Sequence[ToolCall],
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        dialect: Dialect,
        *,
        messages: Sequence[str] = (),
    ) -> str:
        """Render the results of `calls`, the user's `messages`, and the start of the next turn.

        A stand-in conversation holds the calls by name and id, so that those fit; all results are
        rendered at once, because templates join neighbouring ones. Arguments are left out: they
        stand before what is cut off. A template that takes one call in a turn is given one after
        the other, because it names results by the call before them.

        Names and ids are the policy's where the template takes them. One that refuses them, as
        Mistral's refuse an id that has not nine characters, is given ours: nothing that a policy
        writes breaks an episode.
        """
        *written, ours = named_forms(calls[: len(results)], tools, dialect)
        for named in written:
            try:
                return self._added(named, results, tools, dialect, messages)
            except TEMPLATE_ERRORS as error:
                log.info("call_refused_by_template", why=str(error)[:200])
        return self._added(ours, results, tools, dialect, messages)

    def answered(self, messages: Sequence[str], tools: Sequence[ToolSpec], dialect: Dialect) -> str:
        """Render all that stands behind the words of a turn without calls: its end, the user's
        `messages`, and the start of the next turn.
        """
        start = _STAND_IN if dialect.has_system else _STAND_IN[1:]
        said: dict[str, object] = {"role": "assistant", "content": _WORD}
        whole = self.render([*start, said, *user_messages(messages)], tools, prompted=True)
        before, found, behind = whole.rpartition(_WORD)
        if not found:
            raise InternalError(
                "the chat template leaves out what the policy says",
                why=f"it writes {before[:80]!r}",
            )
        return behind

    def _added(
        self,
        named: Sequence[ToolCall],
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        dialect: Dialect,
        messages: Sequence[str],
    ) -> str:
        if not dialect.one_call:
            return self._behind(named, results, tools, dialect, messages, prompted=True)
        last = len(named) - 1
        return "".join(
            self._behind(
                [call],
                [result],
                tools,
                dialect,
                messages if index == last else (),
                prompted=index == last,
            )
            for index, (call, result) in enumerate(zip(named, results, strict=True))
        )

    def _behind(
        self,
        calls: Sequence[ToolCall],
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        dialect: Dialect,
        messages: Sequence[str],
        *,
        prompted: bool,
    ) -> str:
        """Return what stands behind the end of a turn with `calls`, in a small conversation.

        The turn says one word that is not found elsewhere; the first end behind its last place is
        the end of the turn.
        """
        start = _STAND_IN if dialect.has_system else _STAND_IN[1:]
        marked = [replace(call, arguments={"said": _WORD}) for call in calls]
        said = assistant_message(_WORD, marked, dialect, reasoning=" ")
        if dialect.calls_in_words is not None:
            said = {"role": "assistant", "content": _WORD}
        answered = answer_messages(calls, results, messages, dialect)
        earlier = earlier_messages(calls, dialect)
        whole = self.render([*start, *earlier, said, *answered], tools, prompted=prompted)
        word = whole.rfind(_WORD)
        first = whole.find(results[0], word) if results else -1
        found = whole.find(dialect.end, word, first if first >= 0 else len(whole))
        if word < 0 or found < 0:
            raise InternalError(
                f"the chat template does not end a turn in {dialect.end} before its results",
                why=f"it writes {whole[word + len(_WORD) : max(first, 0) or None][:60]!r}",
            )
        return whole[found:] if dialect.end_is_header else self._rest(whole, found, dialect)

    @staticmethod
    def _rest(whole: str, found: int, dialect: Dialect) -> str:
        written = dialect.end + dialect.after
        if not whole.startswith(written, found):
            shown = whole[found : found + len(written) + 20]
            raise InternalError(
                "the chat template ends a turn with calls in another way than one without",
                why=f"{written!r} should stand there, not {shown!r}",
            )
        return whole[found + len(written) :]


_WORD: Final = f"word{secrets.token_hex(16)}"
# A user message, because some templates refuse a conversation that has none.
_STAND_IN: Final[tuple[dict[str, object], ...]] = (
    {"role": "system", "content": "system"},
    {"role": "user", "content": "task"},
)


class Bodies:
    """Texts from outside. They are not rendered: a stand-in that nobody can guess is."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._nonce = secrets.token_hex(16)

    @property
    def stand_ins(self) -> list[str]:
        """The text rendered in place of each."""
        return [f"body{self._nonce}x{index}x" for index in range(len(self._texts))]

    def cut(self, rendered: str, quoting: Quoting = Quoting.RAW) -> list[Scaffold | Body]:
        """Return the rendered text with the real texts in place, written as the template would."""
        pieces = self.pieces(rendered)
        parts: list[Scaffold | Body] = [Scaffold(pieces[0])]
        for text, scaffold in zip(self._texts, pieces[1:], strict=True):
            parts += [Body(quoting.apply(text)), Scaffold(scaffold)]
        return parts

    def pieces(self, rendered: str) -> list[str]:
        """Return the text that the template wrote around them: one piece more than texts."""
        pieces = re.split(rf"body{self._nonce}x(\d+)x", rendered)
        found = [int(index) for index in pieces[1::2]]
        if found != list(range(len(self._texts))):
            raise InternalError(
                "the chat template does not write each text once, in order",
                why=f"of {len(self._texts)} texts it wrote {found}",
            )
        return pieces[::2]
