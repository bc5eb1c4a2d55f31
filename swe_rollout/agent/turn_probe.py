"""Probe single turns of a template: what it writes for one, what follows it, and who reads it.

`template_probe` asks these questions for each form that messages might have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jinja2.exceptions import SecurityError

from swe_rollout.agent.call_text import WRITABLE
from swe_rollout.agent.dialect import Dialect, assistant_message, turn_messages
from swe_rollout.agent.encoding import Encoding, Scaffold
from swe_rollout.agent.family import Family
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.template import TEMPLATE_ERRORS, Bodies, ChatTemplate
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.errors import InternalError
from swe_rollout.spec.tool_format import ToolFormat
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
SYSTEM: dict[str, object] = {"role": "system", "content": "You fix code."}
# Quotes, a backslash and lines, here and below: a template that escapes them would show.
TASK = 'Fix "C:\\x":\n\tsoon.'
RESULTS = ('first "line"\n\tand C:\\path', "{'ä': 1}")
QUOTED = ' a "b"\n\\c '
HARD = 'it\'s "a"\n\\n b.py'
SAID = "Let me look."
_OTHER = "\ue000"
REASONED = "reasoned9f3"


class UnfitError(ValueError):
    """The template does not fit the family."""


def message_of(error: Exception) -> str:
    """Return the error of a trial in one line."""
    text = str(error).partition("\n")[0][:600]
    if isinstance(error, SecurityError):
        return f"transformers renders no template that changes lists or reaches into Python: {text}"
    is_ours = isinstance(error, UnfitError | InternalError)
    return text if is_ours else f"{type(error).__name__}: {text}"


class TurnProbe:
    """One template, with the form of messages that is tried now."""

    def __init__(
        self, template: ChatTemplate, encoding: Encoding, family: Family, wanted: str | None
    ) -> None:
        self._template = template
        self._encoding = encoding
        self._family = family
        self._wanted = wanted
        self._dialect = Dialect(
            call_id=family.call_id,
            end=family.end,
            after=family.after,
            end_is_header=family.end_is_header,
        )

    def _asked(self) -> list[dict[str, object]]:
        """Return the messages before the first turn."""
        user: dict[str, object] = {"role": "user", "content": TASK}
        return [SYSTEM, user] if self._dialect.has_system else [user]

    def _history(self) -> list[dict[str, object]]:
        """Return those of them that the template keeps when turns follow."""
        return self._asked()[-1:] if self._dialect.moves_system else self._asked()

    def _turn_text(self, history: list[dict[str, object]], calls: tuple[ToolCall, ...]) -> str:
        """Return the turn with `calls` as the template writes it, without its end.

        The delta behind it is compared with the template's rendering of the whole.
        """
        results, family = RESULTS[: len(calls)], self._family
        turn = turn_messages(SAID, calls, results, self._dialect)
        whole = self._template.render([*history, *turn], (TOOL,), prompted=True)
        before = self._before(history, whole)
        delta = self._delta(self._as_parsed(whole, before, calls), results)
        if not whole.endswith(delta):
            found = whole[len(before) :]
            raise UnfitError(f"what follows a turn should be {delta!r}, but it renders {found!r}")
        written = whole[len(before) : -len(delta)]
        for end in (family.end, *family.other_ends):
            if end in written:
                raise UnfitError(f"a turn with a call holds {end!r}, where an engine stops")
        return written

    def _before(self, history: list[dict[str, object]], whole: str) -> str:
        """Return the messages before a turn, as they are kept when it follows.

        Some templates close the last message only where a turn is asked for, or close a
        conversation that asks for none; so the longer text that is kept counts.
        """
        texts = [self._template.render(history, (TOOL,), prompted=each) for each in (False, True)]
        kept = [text for text in texts if whole.startswith(text)]
        if kept:
            return max(kept, key=len)
        task = self._dialect.user.apply(TASK)
        if not self._dialect.moves_prompt or task not in whole:
            raise UnfitError("it rewrites earlier messages when a turn follows them")
        # What another turn in this place has in front of it too.
        other = assistant_message(_OTHER, (), self._dialect)
        text = self._template.render([*history, other], (TOOL,), prompted=False)
        return whole[: _common(whole, text)]

    def _as_parsed(
        self, whole: str, before: str, calls: tuple[ToolCall, ...]
    ) -> tuple[ToolCall, ...]:
        """Return the calls with the ids that the template writes where it numbers them itself."""
        if not self._dialect.numbers_results:
            return calls
        turn = whole[len(before) :].partition(self._family.end)[0]
        found = self._parsed(ToolFormat.COHERE, self._encoding.encode([Scaffold(turn)]))
        ids = [call.id for call in found]
        if len(ids) != len(calls):
            raise UnfitError("it numbers results, but not calls")
        return tuple(replace(call, id=each) for call, each in zip(calls, ids, strict=True))

    def _delta(self, calls: tuple[ToolCall, ...], results: tuple[str, ...]) -> str:
        """Return the end of a turn, and a delta as episodes make it: results are put in later."""
        family = self._family
        bodies = Bodies(results)
        text = self._template.added(calls, bodies.stand_ins, (TOOL,), self._dialect)
        added = "".join(part.text for part in bodies.cut(text, self._dialect.result))
        return added if family.end_is_header else family.end + family.after + added

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
        """Return the ids of a turn with one call, without what the prompt has of it."""
        history = self._history()
        return self._behind_opening(history, self._turn_text(history, (call,)))

    def _behind_opening(self, history: list[dict[str, object]], written: str) -> list[int]:
        """Return the ids of a turn's text, without the opening that the prompt has.

        A prompt may go on where the turn does not: it opens the reasoning, for one.
        """
        ids = self._encoding.encode([Scaffold(written)])
        before = self._template.render(history, (TOOL,), prompted=False)
        begun = self._template.render(history, (TOOL,), prompted=True)
        opening = begun.removeprefix(before)
        if not opening or not begun.startswith(before):
            return ids
        return ids[_common(ids, self._encoding.encode([Scaffold(opening)])) :]

    def _reads_both(self, form: str) -> bool:
        """Whether two calls of one turn are read back as two."""
        calls, history = (FIRST_CALL, SECOND_CALL), self._history()
        turn = turn_messages(SAID, calls, RESULTS, self._dialect)
        whole = self._template.render([*history, *turn], (TOOL,), prompted=True)
        written = whole[len(self._before(history, whole)) :].partition(self._family.end)[0]
        found = self._parsed(form, self._behind_opening(history, written))
        return [call.arguments for call in found] == [call.arguments for call in calls]

    def _is_lossless(self, form: str) -> bool:
        """Whether a text that is hard to quote is read back too; else calls go into words."""
        if form not in WRITABLE:
            return True
        written = self._sampled_ids(replace(FIRST_CALL, arguments={"path": HARD, "count": 3}))
        return any(each.arguments.get("path") == HARD for each in self._parsed(form, written))

    def _reads(self, form: str, written: Sequence[int]) -> bool:
        found = self._parsed(form, written)
        return [(each.status, each.arguments) for each in found] == [
            (CallStatus.OK, FIRST_CALL.arguments)
        ]


def prompt_of(template: ChatTemplate, tools: tuple[ToolSpec, ...]) -> str:
    """Return a first prompt, without a system message where the template refuses one."""
    asked: list[dict[str, object]] = [SYSTEM, {"role": "user", "content": TASK}]
    try:
        return template.render(asked, tools, prompted=True)
    except TEMPLATE_ERRORS:
        return template.render(asked[1:], tools, prompted=True)


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many ids, or characters, two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
