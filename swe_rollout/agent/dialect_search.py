"""Which message forms to try on a template, and which call formats within a turn's text.

`template_probe` takes the first dialect that passes on whole conversations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from swe_rollout.agent.call_text import HINTS, NOT_HERMES, WRITABLE, stands_in_words
from swe_rollout.agent.dialect import Dialect, assistant_message
from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.template import SYSTEM, TEMPLATE_ERRORS
from swe_rollout.agent.turn_probe import ASKED, FIRST_CALL, TOOL, TurnProbe
from swe_rollout.spec.tool_format import ToolFormat


class DialectSearch(TurnProbe):
    """One template, and the dialects that it might accept."""

    def dialects(self) -> Iterator[Dialect]:
        """Yield dialects to try, the richest first, those with calls in the text last."""
        base = replace(self._dialect, writes_tools=TOOL.name in self._prompt(), one_call=False)
        if stands_in_words(self._wanted):
            yield from self._systems(
                replace(base, calls_in_words=self._wanted, results_as_user=True)
            )
            return
        yield from self._own_dialects(base)
        yield from self._dialects_in_words(base)

    def taught_formats(self) -> list[str]:
        """Return the formats of the calls that the template writes, or else tells its model of."""
        written = self._written_call()
        return self._formats_of(written) or self._hinted(written)

    def _dialects_in_words(self, base: Dialect) -> Iterator[Dialect]:
        written = self._written_call()
        known = self._formats_of(written)
        native = sorted(WRITABLE.intersection(known))
        # A template that writes calls in a known format teaches that one and no other.
        forms = native if known else self._told_forms(written, writes_tools=base.writes_tools)
        # A template whose calls can be parsed has a place for results too.
        roles = (False,) if native else (False, True)
        for start, form, as_user in product(self._systems(base), forms, roles):
            if self._wanted in (None, form):
                yield replace(start, calls_in_words=form, results_as_user=as_user)

    def _systems(self, base: Dialect) -> Iterator[Dialect]:
        """Yield the dialect with a system message, with one that the template moves, with none."""
        yield replace(base, has_system=True, moves_system=False)
        if self._family.moves_system:
            yield replace(base, has_system=True, moves_system=True)
        yield replace(base, has_system=False, moves_system=False)

    def _own_dialects(self, base: Dialect) -> Iterator[Dialect]:
        """Yield the dialects in which the template writes the calls."""
        words: tuple[tuple[bool, str | None], ...] = ((True, None), (False, None), (False, ""))
        for start, (speaks, silent), as_text in product(self._systems(base), words, (False, True)):
            said = replace(start, speaks_with_calls=speaks, silent_content=silent)
            yield replace(said, arguments_as_text=as_text)
        if self._writes_metadata():
            silent_calls = replace(base, speaks_with_calls=False, silent_content="")
            yield from self._systems(replace(silent_calls, names_in_metadata=True))

    def _writes_metadata(self) -> bool:
        said: dict[str, object] = {"role": "assistant", "metadata": TOOL.name, "content": "{}"}
        try:
            return f"{TOOL.name}\n{{}}" in self._template.render([ASKED, said], (), prompted=False)
        except TEMPLATE_ERRORS:
            return False

    def _prompt(self) -> str:
        return self._template.render_any([ASKED], (TOOL,), prompted=True)

    def _written_call(self) -> str:
        """Return a call as the template itself writes it; empty if it writes none."""
        for dialect in self._own_dialects(replace(self._dialect, one_call=False)):
            said = assistant_message("", (FIRST_CALL,), dialect)
            start = [SYSTEM, ASKED] if dialect.has_system else [ASKED]
            try:
                before = self._template.render(start, (TOOL,), prompted=False)
                text = self._template.render([*start, said], (TOOL,), prompted=False)
            except TEMPLATE_ERRORS:
                continue
            if "a b.py" in text:
                return text.removeprefix(before).partition(self._family.end)[0]
        return ""

    def _formats_of(self, written: str) -> list[str]:
        """Return the formats whose parsers read a call that the template wrote."""
        ids = self._encoding.encode([Scaffold(written)]) if written else []
        return [form for form in ToolFormat if ids and self._reads(form, ids)]

    def _told_forms(self, written: str, *, writes_tools: bool) -> list[str]:
        """Return the call formats that the template describes to its model.

        If it describes none, the harness describes the format that the job names.
        """
        forms = self._hinted(written)
        if not written and not writes_tools:
            forms = [str(self._wanted)] if self._wanted in WRITABLE else [*forms, "hermes"]
        return list(dict.fromkeys(forms))

    def _hinted(self, written: str) -> list[str]:
        said = self._prompt()
        words = frozenset[str]() if written else self._encoding.atomic
        forms: list[str] = [form for text, form in HINTS if text in said or text in words]
        if f"[{TOOL.name}(" in written:
            # Python without quotes, or commas: no parser could read it.
            forms.append(ToolFormat.PYTHONIC)
        if any(tag in said for tag in NOT_HERMES):
            forms = [form for form in forms if form != ToolFormat.HERMES]
        return list(dict.fromkeys(forms))
