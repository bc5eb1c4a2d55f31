"""Deltas as text: what a template writes between two turns, with placeholders for outside text.

A delta is the difference between a small stand-in conversation without and with the new messages,
so sampled text is never rendered again. Used by `renderer`, which encodes it, and by the probes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from swe_rollout.agent.dialect import (
    Dialect,
    answer_messages,
    assistant_message,
    earlier_messages,
    named_forms,
)
from swe_rollout.agent.template import TEMPLATE_ERRORS, ChatTemplate
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import InternalError
from swe_rollout.types.turn import ToolCall

_WORD: Final = f"word{secrets.token_hex(16)}"
# A user message, because some templates refuse a conversation that has none.
_STAND_IN: Final[tuple[dict[str, object], ...]] = (
    {"role": "system", "content": "system"},
    {"role": "user", "content": "task"},
)

log = structlog.get_logger()


class UnfitError(ValueError):
    """The template does not fit the family."""


class StandIns:
    """Unguessable placeholders, which are rendered in place of texts from outside."""

    def __init__(self, count: int) -> None:
        self._nonce = secrets.token_hex(16)
        self.texts = [f"body{self._nonce}x{index}x" for index in range(count)]
        """The placeholder of each text."""

    def pieces(self, rendered: str) -> list[str]:
        """Return the template's text around the placeholders: one piece more than placeholders."""
        pieces = re.split(rf"body{self._nonce}x(\d+)x", rendered)
        found = [int(index) for index in pieces[1::2]]
        if found != list(range(len(self.texts))):
            raise InternalError(
                "the chat template does not write each text once, in order",
                why=f"of {len(self.texts)} texts it wrote {found}",
            )
        return pieces[::2]


@dataclass(frozen=True, slots=True)
class DeltaTemplate:
    """What a template writes between two turns, in a dialect that it accepts."""

    template: ChatTemplate
    dialect: Dialect

    def pieces(
        self, calls: Sequence[ToolCall], tools: Sequence[ToolSpec], *, messages: int = 0
    ) -> list[str]:
        """Return the text around the results of `calls` and the given number of user messages.

        It starts after the turn's end token, or with it if that token is also the next header.
        It depends only on the names and ids of the calls.
        """
        stand_ins = StandIns(len(calls) + messages)
        results, said = stand_ins.texts[: len(calls)], stand_ins.texts[len(calls) :]
        if calls or not messages:
            return stand_ins.pieces(self._added(calls, results, tools, said))
        return stand_ins.pieces(self.behind_end(self._answered(said, tools)))

    def text(
        self,
        calls: Sequence[ToolCall],
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        *,
        messages: Sequence[str] = (),
    ) -> str:
        """Return the delta with results and messages filled in as the template would write them."""
        first, *rest = self.pieces(calls, tools, messages=len(messages))
        bodies = self.dialect.bodies(results, messages)
        return first + "".join(body + piece for body, piece in zip(bodies, rest, strict=True))

    def behind_end(self, behind: str) -> str:
        """Return the text after the end of a turn without calls, given all text after the turn.

        An end token that is also the next header is kept; the policy may have sampled it. Raises
        UnfitError if the template ends such a turn in a way that the family does not know.
        """
        family = self.dialect.family
        if family.end_is_header:
            return behind
        for end in (family.end + family.after, family.cut_end, *family.other_ends):
            if end and behind.startswith(end):
                return behind[len(end) :]
        raise UnfitError(f"it ends a turn without calls in no known way: {behind[:80]!r}")

    def _start(self) -> Sequence[dict[str, object]]:
        return _STAND_IN if self.dialect.has_system else _STAND_IN[1:]

    def _answered(self, messages: Sequence[str], tools: Sequence[ToolSpec]) -> str:
        """Render everything after the text of a turn without calls: its end, the user's
        `messages`, and the start of the next turn.
        """
        said: dict[str, object] = {"role": "assistant", "content": _WORD}
        answered = answer_messages((), (), messages, self.dialect)
        whole = self.template.render([*self._start(), said, *answered], tools, prompted=True)
        before, found, behind = whole.rpartition(_WORD)
        if not found:
            raise InternalError(
                "the chat template leaves out what the policy says",
                why=f"it writes {before[:80]!r}",
            )
        return behind

    def _added(
        self,
        calls: Sequence[ToolCall],
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        messages: Sequence[str],
    ) -> str:
        """Render the results of `calls`, the user's `messages`, and the start of the next turn.

        A stand-in conversation contains the calls with matching names and ids. All results are
        rendered together because templates join neighbouring ones. Arguments are omitted: they come
        before the part that is kept. A template that accepts only one call per turn gets each call
        in its own turn, because it takes the name of a result from the call before it.

        Names and ids are the policy's if the template accepts them. Otherwise ours replace them
        (Mistral's templates, for example, reject an id that is not nine characters long), so that
        nothing a policy writes breaks an episode.
        """
        *written, ours = named_forms(calls[: len(results)], tools, self.dialect)
        for named in written:
            try:
                return self._behind_each(named, results, tools, messages)
            except TEMPLATE_ERRORS as error:
                log.info("call_refused_by_template", why=str(error)[:200])
        return self._behind_each(ours, results, tools, messages)

    def _behind_each(
        self,
        named: Sequence[ToolCall],
        results: Sequence[str],
        tools: Sequence[ToolSpec],
        messages: Sequence[str],
    ) -> str:
        if not self.dialect.one_call:
            return self._behind(named, results, tools, messages, prompted=True)
        last = len(named) - 1
        return "".join(
            self._behind(
                [call],
                [result],
                tools,
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
        messages: Sequence[str],
        *,
        prompted: bool,
    ) -> str:
        """Return the text after the end of a turn with `calls`, in a small conversation.

        The turn contains a word that occurs nowhere else; the first end token after its last
        occurrence is the end of the turn.
        """
        dialect, family = self.dialect, self.dialect.family
        marked = [replace(call, arguments={"said": _WORD}) for call in calls]
        said = assistant_message(_WORD, marked, dialect, reasoning=" ")
        if dialect.calls_in_words is not None:
            said = {"role": "assistant", "content": _WORD}
        answered = answer_messages(calls, results, messages, dialect)
        conversation = [*self._start(), *earlier_messages(calls, dialect), said, *answered]
        whole = self.template.render(conversation, tools, prompted=prompted)
        word = whole.rfind(_WORD)
        first = whole.find(results[0], word) if results else -1
        found = whole.find(family.end, word, first if first >= 0 else len(whole))
        if word < 0 or found < 0:
            raise InternalError(
                f"the chat template does not end a turn in {family.end} before its results",
                why=f"it writes {whole[word + len(_WORD) : max(first, 0) or None][:60]!r}",
            )
        if family.end_is_header:
            return whole[found:]
        written = family.end + family.after
        if not whole.startswith(written, found):
            shown = whole[found : found + len(written) + 20]
            raise InternalError(
                "the chat template ends a turn with calls in another way than one without",
                why=f"{written!r} should stand there, not {shown!r}",
            )
        return whole[found + len(written) :]
