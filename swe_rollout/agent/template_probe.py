"""Probe a chat template when it is loaded: can its tokens be kept exact?

No family is taken on trust: its facts are compared with the template's own rendering of whole
conversations. A template that has no family, or contradicts it, gets a family derived from its
renderings. A template that can't be kept exact is refused with the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from swe_rollout.agent.call_text import EXAMPLE, WRITABLE, stands_in_words, written_call
from swe_rollout.agent.delta import StandIns, UnfitError
from swe_rollout.agent.derived import DerivedFamilies
from swe_rollout.agent.dialect import Dialect, Quoting, assistant_message, turn_messages
from swe_rollout.agent.dialect_search import DialectSearch
from swe_rollout.agent.encoding import Encoding
from swe_rollout.agent.family import FAMILIES, Family
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.template import SYSTEM, TEMPLATE_ERRORS, ChatTemplate
from swe_rollout.agent.turn_probe import (
    ASKED,
    FIRST_CALL,
    QUOTED,
    REASONED,
    RESULTS,
    SAID,
    SECOND_CALL,
    TASK,
    TOOL,
    message_of,
)
from swe_rollout.errors import PrerequisiteError
from swe_rollout.types.turn import ToolCall

UNKNOWN_FORMAT = "it writes calls in no known format"
_READ = 2
"""The progress of a dialect whose calls were parsed back."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The result of probing a template."""

    dialect: Dialect
    end_id: int
    ends: frozenset[int]
    """Tokens that end a turn; after one of them, the harness adds no end."""
    tool_format: str
    drops_reasoning: bool
    """Whether the template drops the reasoning of earlier turns, which is kept here anyway."""
    example: str = ""
    """A call as the policy should write it, for templates that describe no tools."""
    taught: tuple[str, ...] = ()
    """The formats that the template itself writes calls in, or tells its model of."""
    is_rewritten: bool = False
    """Whether the template rewrites an earlier turn once a later one follows; the tokens that were
    sent are kept here all the same."""

    @property
    def family(self) -> Family:
        """The facts about the model's chat grammar."""
        return self.dialect.family


def probe(template: ChatTemplate, encoding: Encoding, wanted: str | None = None) -> Grammar:
    """Return the grammar of a template. PrerequisiteError names what can't be kept exact.

    `wanted` is the format that the job names. Its parser must find the template's own calls, or no
    run would ever find a call.
    """
    try:
        template.render_any([ASKED], (TOOL,), prompted=True)
    except TEMPLATE_ERRORS as error:
        raise _refusal([f"it renders no task: {message_of(error)}"], wanted) from error
    known = [family for family in FAMILIES if set(family.needs) <= encoding.atomic]
    derived = DerivedFamilies(template, encoding, TOOL)
    families = (*known, *derived.families())
    why: list[str] = []
    # A template that keeps its prompt as sent must never be classified as one that moves it.
    for moves_prompt, family in product((False, True), families):
        try:
            dialect = Dialect(family, moves_prompt=moves_prompt)
            return _Trial(template, encoding, dialect, wanted).grammar()
        except TEMPLATE_ERRORS as error:
            message = message_of(error)
            is_said = any(each.endswith(message) for each in why)
            if not family.is_guess and not is_said:
                why.append(f"as {family.name}: {message}" if family in known else message)
    if not derived.writes_turns:
        why = ["it leaves out what the policy says"]
    behind = derived.behind
    written = f": behind one it writes {behind[:60]!r}" if behind else ": it writes nothing behind"
    raise _refusal(why or [f"no token of the vocabulary ends a turn{written}"], wanted)


class _Trial(DialectSearch):
    """One template, probed as one family."""

    def grammar(self) -> Grammar:
        """Return the grammar. Raises one of `TEMPLATE_ERRORS` if the family does not fit."""
        family = self._family
        end = self._encoding.id_of(family.end)
        if end is None:
            raise UnfitError(f"{family.end} is no token of the vocabulary")
        form, is_rewritten = self._settle()
        others = (self._encoding.id_of(token) for token in family.other_ends)
        return Grammar(
            dialect=self._dialect,
            end_id=end,
            ends=frozenset({end, *(each for each in others if each is not None)}),
            tool_format=form,
            drops_reasoning=self._drops_reasoning(),
            example="" if self._dialect.writes_tools else self._example(form),
            taught=tuple(self.taught_formats()),
            is_rewritten=is_rewritten,
        )

    def _settle(self) -> tuple[str, bool]:
        """Choose the first dialect in which whole conversations are exact.

        Return the format of its calls, and whether the template rewrites sent text.
        """
        errors: list[tuple[int, str]] = []
        for dialect in self.dialects():
            self._dialect, passed = dialect, 0
            try:
                self._dialect = self._with_quoting(dialect)
                passed = 1
                if (form := self._tool_format()) is None:
                    raise UnfitError(self._unread())
                self._dialect = self._with_call_count(form)
                passed = _READ
                self._check_prompt()
                return form, self._check_second_round() or dialect.moves_prompt
            except TEMPLATE_ERRORS as error:
                errors.append((passed, message_of(error)))
        # The dialect that got furthest explains most of the problem, as does an unparsed call.
        furthest = max(passed for passed, _ in errors)
        said = [message for passed, message in errors if passed == furthest]
        unread = [message for _, message in errors if UNKNOWN_FORMAT in message]
        raise UnfitError((said if furthest == _READ else unread or said)[0])

    def _example(self, form: str) -> str:
        """Return an example call as the harness writes it, or else as the template does."""
        if form in WRITABLE or stands_in_words(form):
            return written_call(form)
        calls = (replace(EXAMPLE, id="0"),) if self._dialect.numbers_results else (EXAMPLE,)
        return self._turn_text(self._history(), calls).strip()

    def _unread(self) -> str:
        if self._wanted is not None:
            taught = " or ".join(self.taught_formats())
            why = f"{self._wanted} does not read the calls that it writes"
            return f"{why}; it teaches {taught}" if taught else why
        written = self._encoding.decode(self._sampled_ids(FIRST_CALL))
        return (
            f"{UNKNOWN_FORMAT}: {written[-160:]!r}"
            if TOOL.name in written
            else ("it writes no calls, and says nothing of a format that could stand in the words")
        )

    def _with_call_count(self, form: str) -> Dialect:
        try:
            has_both = self._reads_both(form)
        except TEMPLATE_ERRORS:
            has_both = False
        return self._dialect if has_both else replace(self._dialect, one_call=True)

    def _with_quoting(self, dialect: Dialect) -> Dialect:
        """Find how the template escapes the task and a result, with a text that shows it."""
        history = self._history()
        asking: dict[str, object] = {"role": "user", "content": QUOTED}
        asked = [*self._asked()[:-1], asking]
        text = self._whole(asked)
        if dialect.has_system and str(SYSTEM["content"]) not in text:
            raise UnfitError("it leaves out the system message")
        user = _quoting(text, "a user message")
        turn = turn_messages(SAID, (FIRST_CALL,), [QUOTED], dialect)
        whole = self._whole([*history, *turn])
        return replace(dialect, user=user, result=_quoting(whole, "a result"))

    def _check_prompt(self) -> None:
        history = self._asked()
        stand_ins = StandIns(1)
        stand_in: dict[str, object] = {"role": "user", "content": stand_ins.texts[0]}
        written = self._dialect.user.apply(TASK)
        pieces = stand_ins.pieces(self._whole([*history[:-1], stand_in]))
        if written.join(pieces) != self._whole(history):
            raise UnfitError("it changes the text of a user message")

    def _check_second_round(self) -> bool:
        """Check a second turn, with parallel calls if the template accepts them.

        Return whether the template then rewrites the first turn.
        """
        if self._family.has_one_round:
            return False
        errors: list[Exception] = []
        settled = self._dialect
        for one_call, numbers in (
            (settled.one_call, False),
            (True, False),
            (settled.one_call, True),
        ):
            self._dialect = replace(settled, one_call=one_call, numbers_results=numbers)
            try:
                return self._second_round()
            except TEMPLATE_ERRORS as error:
                errors.append(error)
        raise errors[0]

    def _second_round(self) -> bool:
        calls = (FIRST_CALL,) if self._dialect.one_call else (FIRST_CALL, SECOND_CALL)
        first, second = _numbered((FIRST_CALL,), 0), _numbered(calls, 1)
        turn = turn_messages(SAID, first, RESULTS[:1], self._dialect)
        again = turn_messages(SAID, second, RESULTS[: len(calls)], self._dialect)
        whole = self._whole([*self._history(), *turn, *again])
        is_kept = whole.count(str(FIRST_CALL.arguments["path"])) == len((turn, again))
        if self._dialect.moves_prompt and not is_kept:
            raise UnfitError("it leaves out earlier turns")
        try:
            self._before([*self._history(), *turn], whole)
        except UnfitError:
            if whole.endswith(self._behind_turn(second, RESULTS[: len(calls)])):
                return True
            raise
        self._turn_text([*self._history(), *turn], second)
        return False

    def _drops_reasoning(self) -> bool:
        if self._family.reasoning.closer not in self._template.source:
            return False
        turn = assistant_message(SAID, (), self._dialect, reasoning=REASONED)
        again: dict[str, object] = {"role": "user", "content": "And now?"}
        try:
            text = self._template.render([*self._history(), turn, again], (), prompted=False)
        except TEMPLATE_ERRORS:
            return False
        return REASONED not in text


def _numbered(calls: tuple[ToolCall, ...], start: int) -> tuple[ToolCall, ...]:
    """Return calls with unique ids, as the policy would assign them."""
    return tuple(replace(call, id=f"c{start + at:08}") for at, call in enumerate(calls))


def opens_reasoning(begun: str, reasoning: Reasoning) -> bool:
    """Return whether the harness's text ends inside the reasoning."""
    opened = begun.rfind(reasoning.opener)
    return opened >= 0 and begun.find(reasoning.closer, opened) < 0


def _quoting(rendered: str, what: str) -> Quoting:
    for quoting in (Quoting.RAW, Quoting.JSON, Quoting.TRIMMED):
        if quoting.apply(QUOTED) in rendered:
            return quoting
    raise UnfitError(f"it changes the text of {what}, or leaves it out")


def _refusal(why: Sequence[str], wanted: str | None) -> PrerequisiteError:
    reasons = "; ".join(dict.fromkeys(why))
    if wanted is not None:
        return PrerequisiteError(
            f"the chat template does not fit the format of calls {wanted}",
            why=reasons,
            fix="remove spec.agent.toolFormat, so that the template's own format is found",
        )
    if any(UNKNOWN_FORMAT in each for each in why):
        return PrerequisiteError(
            "the chat template writes calls in no known format",
            why=reasons,
            fix="write a parser for its calls and name it in spec.agent.toolFormat, as "
            "docs/how-to/extend/call-formats.md shows; it is held against the template",
        )
    return PrerequisiteError(
        "the tokens of this model's chat template can't be kept exact",
        why=reasons,
        fix="set spec.policy.tokenizer to a folder with another template of the model; "
        "`swe-rollout check-template` checks it",
    )
