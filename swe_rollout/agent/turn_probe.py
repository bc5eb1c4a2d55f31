"""Probe single turns of a template: their text, what follows them, and which parser reads them.

`template_probe` uses it for each form that messages might have; `renderer` uses it to check whether
a user message may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jinja2.exceptions import SecurityError

from swe_rollout.agent.call_text import WRITABLE
from swe_rollout.agent.delta import DeltaTemplate, UnfitError
from swe_rollout.agent.dialect import Dialect, answer_messages, assistant_message, turn_messages
from swe_rollout.agent.encoding import Encoding, Scaffold
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.template import SYSTEM, TEMPLATE_ERRORS, ChatTemplate
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.errors import InternalError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.text.user_code import said, user_code
from swe_rollout.types.turn import CallStatus, ToolCall

TOOL = ToolSpec(
    "probe_tool",
    "Looks something up.",
    (
        Parameter("path", "Where.", required=True),
        Parameter("count", "How much.", ParameterType.INTEGER),
    ),
)
FIRST_CALL = ToolCall(CallStatus.OK, "", TOOL.name, {"path": "a b.py", "count": 3})
SECOND_CALL = ToolCall(CallStatus.OK, "", TOOL.name, {"path": "c.py", "count": 40})
# Quotes, a backslash and newlines, here and below, reveal a template that escapes them.
TASK = 'Fix "C:\\x":\n\tsoon.'
ASKED: dict[str, object] = {"role": "user", "content": TASK}
RESULTS = ('first "line"\n\tand C:\\path', "{'ä': 1}")
QUOTED = ' a "b"\n\\c '
HARD = 'it\'s "a"\n\\n b.py'
SAID = "Let me look."
_OTHER = "\ue000"
_MESSAGE = 'And "D:\\y"?\n\tNow.'
REASONED = "reasoned9f3"


def message_of(error: Exception) -> str:
    """Return the message of a trial's error on one line."""
    if (found := user_code(error)) is not None:
        return f"{said(error)} ({found.where})"
    text = str(error).partition("\n")[0][:600]
    if isinstance(error, SecurityError):
        return f"transformers renders no template that changes lists or reaches into Python: {text}"
    is_ours = isinstance(error, UnfitError | InternalError)
    return text if is_ours else f"{type(error).__name__}: {text}"


class TurnProbe:
    """One template, with the message form that is being tried."""

    def __init__(
        self,
        template: ChatTemplate,
        encoding: Encoding,
        dialect: Dialect,
        wanted: str | None = None,
    ) -> None:
        self._template = template
        self._encoding = encoding
        self._dialect = dialect
        self._family = dialect.family
        self._wanted = wanted

    def _whole(self, messages: Sequence[dict[str, object]]) -> str:
        """Render messages and the start of the next turn."""
        return self._template.render([*messages], (TOOL,), prompted=True)

    def _asked(self) -> list[dict[str, object]]:
        """Return the messages before the first turn."""
        return [SYSTEM, ASKED] if self._dialect.has_system else [ASKED]

    def _history(self) -> list[dict[str, object]]:
        """Return the messages before the first turn that the template keeps when turns follow."""
        return self._asked()[-1:] if self._dialect.moves_system else self._asked()

    def _turn_text(self, history: list[dict[str, object]], calls: tuple[ToolCall, ...]) -> str:
        """Return the turn with `calls` as the template writes it, without its end.

        The delta after it is compared with the template's rendering of the whole.
        """
        results, family = RESULTS[: len(calls)], self._family
        turn = turn_messages(SAID, calls, results, self._dialect)
        whole = self._whole([*history, *turn])
        before = self._before(history, whole)
        delta = self._behind_turn(self._as_parsed(whole, before, calls), results)
        if not whole.endswith(delta):
            found = whole[len(before) :]
            raise UnfitError(f"what follows a turn should be {delta!r}, but it renders {found!r}")
        written = whole[len(before) : -len(delta)]
        for end in (family.end, *family.other_ends):
            if end in written:
                raise UnfitError(f"a turn with a call holds {end!r}, where an engine stops")
        return written

    def _before(self, history: list[dict[str, object]], whole: str) -> str:
        """Return the text of the messages before a turn, as it remains when the turn follows.

        Some templates close the last message only before a requested turn, or close a conversation
        without one; so the longer remaining text counts.
        """
        texts = [self._template.render(history, (TOOL,), prompted=each) for each in (False, True)]
        kept = [text for text in texts if whole.startswith(text)]
        if kept:
            return max(kept, key=len)
        task = self._dialect.user.apply(TASK)
        if not self._dialect.moves_prompt or task not in whole:
            raise UnfitError("it rewrites earlier messages when a turn follows them")
        # The text that would also precede another turn in this place.
        other = assistant_message(_OTHER, (), self._dialect)
        text = self._template.render([*history, other], (TOOL,), prompted=False)
        return whole[: common_prefix_length(whole, text)]

    def _as_parsed(
        self, whole: str, before: str, calls: tuple[ToolCall, ...]
    ) -> tuple[ToolCall, ...]:
        """Return the calls, with the template's own ids if it numbers them itself."""
        if not self._dialect.numbers_results:
            return calls
        turn = whole[len(before) :].partition(self._family.end)[0]
        found = self._parsed(ToolFormat.COHERE, self._encoding.encode([Scaffold(turn)]))
        ids = [call.id for call in found]
        if len(ids) != len(calls):
            raise UnfitError("it numbers results, but not calls")
        return tuple(replace(call, id=each) for call, each in zip(calls, ids, strict=True))

    def _delta(
        self, calls: tuple[ToolCall, ...], results: tuple[str, ...], messages: tuple[str, ...] = ()
    ) -> str:
        """Return a delta as episodes make it, with results and messages filled in later."""
        delta = DeltaTemplate(self._template, self._dialect)
        return delta.text(calls, results, (TOOL,), messages=messages)

    def _behind_turn(self, calls: tuple[ToolCall, ...], results: tuple[str, ...]) -> str:
        """Return the end of a turn and the delta after it."""
        family, delta = self._family, self._delta(calls, results)
        return delta if family.end_is_header else family.end + family.after + delta

    def _tool_format(self) -> str | None:
        """Return the format whose parser reads the template's own call back unchanged."""
        written = self._sampled_ids(FIRST_CALL)
        if self._dialect.calls_in_words is not None:
            words = self._dialect.calls_in_words
            return words if self._reads(words, written) else None
        forms = (*self._family.formats, *ToolFormat) if self._wanted is None else (self._wanted,)
        fits = (form for form in dict.fromkeys(forms) if self._reads(form, written))
        form = next((form for form in fits if self._is_lossless(form)), None)
        if (
            self._wanted is None
            and form == ToolFormat.GLM45
            and f"{TOOL.name}\n" not in self._encoding.decode(written)
        ):
            return ToolFormat.GLM47
        return form

    def _parsed(self, form: str, written: Sequence[int]) -> tuple[ToolCall, ...]:
        ended = replace(self._encoding.sampled(written), ended_by=self._family.end)
        reasoning = replace(self._family.reasoning, opened=False)
        return parser_for(form).parse(ended, tools=(TOOL,), reasoning=reasoning)

    def _sampled_ids(self, call: ToolCall) -> list[int]:
        """Return the ids of a turn with one call, without the part that is in the prompt."""
        history = self._history()
        return self._behind_opening(history, self._turn_text(history, (call,)))

    def _behind_opening(self, history: list[dict[str, object]], written: str) -> list[int]:
        """Return the ids of a turn's text, without the opening that is in the prompt.

        A prompt may extend beyond that, for example to open the reasoning.
        """
        ids = self._encoding.encode([Scaffold(written)])
        before = self._template.render(history, (TOOL,), prompted=False)
        begun = self._whole(history)
        opening = begun.removeprefix(before)
        if not opening or not begun.startswith(before):
            return ids
        return ids[common_prefix_length(ids, self._encoding.encode([Scaffold(opening)])) :]

    def _reads_both(self, form: str) -> bool:
        """Return whether two calls of one turn are parsed back as two."""
        calls, history = (FIRST_CALL, SECOND_CALL), self._history()
        turn = turn_messages(SAID, calls, RESULTS, self._dialect)
        whole = self._whole([*history, *turn])
        written = whole[len(self._before(history, whole)) :].partition(self._family.end)[0]
        found = self._parsed(form, self._behind_opening(history, written))
        return [call.arguments for call in found] == [call.arguments for call in calls]

    def _is_lossless(self, form: str) -> bool:
        """Return whether hard-to-quote text is parsed back; if not, calls go into the text."""
        if form not in WRITABLE:
            return True
        written = self._sampled_ids(replace(FIRST_CALL, arguments={"path": HARD, "count": 3}))
        return any(each.arguments.get("path") == HARD for each in self._parsed(form, written))

    def _reads(self, form: str, written: Sequence[int]) -> bool:
        found = self._parsed(form, written)
        return [(each.status, each.arguments) for each in found] == [
            (CallStatus.OK, FIRST_CALL.arguments)
        ]


class MessageProbe(TurnProbe):
    """Checks whether user messages can be appended after a turn exactly.

    A whole conversation that continues with a user message is rendered. It must end with the
    delta that episodes append, with everything before the turn unchanged. Otherwise, as with
    templates that move the tools to the last message, such deltas are refused.
    """

    def __init__(self, template: ChatTemplate, encoding: Encoding, dialect: Dialect) -> None:
        super().__init__(template, encoding, dialect)
        self._refusals: dict[bool, str] = {}

    def refusal(self, *, after_calls: bool) -> str:
        """Return why messages can't be appended after a turn with or without calls; '' if they can.

        It is checked once, when the first episode needs it.
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
        whole = self._whole([*history, said, *answered])
        before = self._before(history, whole)
        delta = self._delta(self._as_parsed(whole, before, calls), results, (_MESSAGE,))
        turn = whole[len(before) :]
        if not turn.endswith(delta):
            raise UnfitError(f"what follows a turn should be {delta!r}, but it renders {turn!r}")
        # Not every template writes text in addition to calls.
        kept = str(FIRST_CALL.arguments["path"]) if calls else SAID
        if kept not in turn.removesuffix(delta):
            raise UnfitError("it leaves out what the policy said when a user message follows")


def common_prefix_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many leading ids, or characters, both have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
