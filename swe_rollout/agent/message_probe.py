"""Probe a chat template for user messages behind a turn: can they be appended exactly?

A conversation that goes on by a message of the user is rendered whole, and must end in the delta
that episodes append, with everything before the turn unchanged. Where it does not, as with
templates that move the tools to the last message, such a delta is refused. Used by `renderer`.
"""

from __future__ import annotations

from swe_rollout.agent.dialect import answer_messages, assistant_message
from swe_rollout.agent.encoding import Encoding
from swe_rollout.agent.family import Family
from swe_rollout.agent.template import TEMPLATE_ERRORS, Bodies, ChatTemplate
from swe_rollout.agent.template_probe import Grammar
from swe_rollout.agent.turn_probe import (
    FIRST_CALL,
    RESULTS,
    SAID,
    TOOL,
    TurnProbe,
    UnfitError,
    message_of,
)
from swe_rollout.types.turn import ToolCall

_MESSAGE = 'And "D:\\y"?\n\tNow.'


class MessageProbe(TurnProbe):
    """One template whose grammar is known."""

    def __init__(self, template: ChatTemplate, encoding: Encoding, grammar: Grammar) -> None:
        super().__init__(template, encoding, grammar.family, grammar.tool_format)
        self._dialect = grammar.dialect
        self._refusals: dict[bool, str] = {}

    def refusal(self, *, after_calls: bool) -> str:
        """Return why messages can't be appended behind a turn with or without calls; '': they can.

        Found out once, when the first episode asks.
        """
        if after_calls not in self._refusals:
            try:
                self._check((FIRST_CALL,) if after_calls else ())
                self._refusals[after_calls] = ""
            except TEMPLATE_ERRORS as error:
                self._refusals[after_calls] = message_of(error)
        return self._refusals[after_calls]

    def _check(self, calls: tuple[ToolCall, ...]) -> None:
        results, history = RESULTS[: len(calls)], self._history()
        said = assistant_message(SAID, calls, self._dialect)
        answered = answer_messages(calls, results, (_MESSAGE,), self._dialect)
        whole = self._template.render([*history, said, *answered], (TOOL,), prompted=True)
        before = self._before(history, whole)
        delta = self._message_delta(self._as_parsed(whole, before, calls), results)
        turn = whole[len(before) :]
        if not turn.endswith(delta):
            raise UnfitError(f"what follows a turn should be {delta!r}, but it renders {turn!r}")
        # Not every template writes words beside calls.
        kept = str(FIRST_CALL.arguments["path"]) if calls else SAID
        if kept not in turn.removesuffix(delta):
            raise UnfitError("it leaves out what the policy said when a user message follows")

    def _message_delta(self, calls: tuple[ToolCall, ...], results: tuple[str, ...]) -> str:
        """Return a delta as episodes make it: results and the message are put in later."""
        dialect = self._dialect
        bodies = Bodies((*results, _MESSAGE))
        *shown, message = bodies.stand_ins
        if calls:
            text = self._template.added(calls, shown, (TOOL,), dialect, messages=(message,))
        else:
            behind = self._template.answered((message,), (TOOL,), dialect)
            text = behind_end(behind, self._family)
        pieces = bodies.pieces(text)
        texts = [*map(dialect.result.apply, results), dialect.user.apply(_MESSAGE), ""]
        return "".join(piece + body for piece, body in zip(pieces, texts, strict=True))


def behind_end(behind: str, family: Family) -> str:
    """Return what follows the end of a turn without calls, given all that stands behind its words.

    Where the end is the header of what follows, that stays; the policy may have sampled it.
    Raises UnfitError where the template ends such a turn in no way that the family knows.
    """
    if family.end_is_header:
        return behind
    for end in (family.end + family.after, family.cut_end, *family.other_ends):
        if end and behind.startswith(end):
            return behind[len(end) :]
    raise UnfitError(f"it ends a turn without calls in no known way: {behind[:80]!r}")
