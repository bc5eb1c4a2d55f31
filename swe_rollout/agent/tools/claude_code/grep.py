"""The `Grep` tool: ripgrep's patterns and output modes, with the `find` and `grep` of the image.

First the files are listed here and chosen by glob; then `grep` says which of them match; then it
prints their lines, of as many files as can be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec, readable
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.candidates import find_candidates, listed_types
from swe_rollout.agent.tools.claude_code.ere import translate
from swe_rollout.agent.tools.claude_code.matches import (
    Context,
    Search,
    counted,
    find_matches,
    matching_lines,
)
from swe_rollout.agent.tools.claude_code.spans import matching_spans
from swe_rollout.agent.tools.claude_code.text import page
from swe_rollout.types.turn import Observation

_MAX_CONTEXT = 100
_PLAIN: Final = {
    "-A": "after",
    "-B": "before",
    "-C": "around",
    "-n": "line_numbers",
    "-i": "ignore_case",
}
_FILES, _CONTENT, _COUNT = "files_with_matches", "content", "count"


class Grep(ClaudeCodeTool):
    """Searches files for a regular expression."""

    def __init__(self, name: str = "Grep", *, plain_names: bool = False) -> None:
        """Offer the tool under `name`.

        `plain_names`: with `after` for `-A` and so on, for policies that write calls in Python.
        """
        self._options = {plain: dashed for dashed, plain in _PLAIN.items()} if plain_names else {}
        offered = _PLAIN if plain_names else {}
        parameters = tuple(
            replace(each, name=offered.get(each.name, each.name)) for each in _PARAMETERS
        )
        super().__init__(ToolSpec(name, _DESCRIPTION, parameters))

    async def call(self, call: Call) -> Observation:
        arguments = {self._options.get(name, name): each for name, each in call.arguments.items()}
        return await self._search(replace(call, arguments=arguments))

    async def _search(self, call: Call) -> Observation:
        pattern = translate(call.required("pattern"), multiline=call.flag("multiline"))
        if call.flag("-i"):
            pattern = replace(pattern, ignores_case=True)
        mode, context = call.text("output_mode") or _FILES, _context(call)
        if pattern.is_multiline and mode == _COUNT:
            raise ToolError("count is of lines, and multiline is not: use another output_mode")
        if pattern.is_multiline and mode == _CONTENT and pattern.is_lazy:
            raise ToolError(
                "content can't show where a lazy quantifier such as *? ends: write a class such as "
                "[^)]*, or use files_with_matches"
            )
        limit = call.integer("head_limit")
        search = Search(pattern, await find_candidates(call))
        found = await _found(call, search, mode, context)
        return await off_loop(_observation, found, limit, call.context.output_bytes)


@dataclass(frozen=True, slots=True)
class _Found:
    """Lines to show, and what is to be said about them."""

    lines: Sequence[str]
    unit: str
    """What a line is: a file, a line or a count."""
    notes: Sequence[str] = ()
    complete: bool = True
    """Whether `lines` are all there are."""
    timed_out: bool = False


async def _found(call: Call, search: Search, mode: str, context: Context) -> _Found:
    matches = await find_matches(call, search)
    notes = [*search.candidates.notes, *matches.notes]
    match mode:
        case "content":
            find = matching_spans if search.pattern.is_multiline else matching_lines
            shown = await find(call, search, matches, context)
            return _Found(
                shown.lines,
                "lines",
                [*notes, *shown.notes],
                complete=shown.complete,
                timed_out=matches.timed_out or shown.timed_out,
            )
        case "count":
            counts = await counted(call, search, matches)
            return _Found(counts.lines, "counts", [*notes, *counts.notes], counts.complete)
        case _:
            lines = [f"{search.candidates.prefix}{readable(path)}" for path in matches.paths]
            return _Found(lines, "files", notes, timed_out=matches.timed_out)


def _observation(found: _Found, head_limit: int | None, output_bytes: int) -> Observation:
    notes = list(found.notes)
    room = output_bytes - sum(len(note.encode(errors="replace")) + 3 for note in notes)
    # 0 is no limit, as its users know it.
    chosen = found.lines[:head_limit] if head_limit else found.lines
    shown = page(chosen, room)
    if len(shown.lines) < len(found.lines) or not found.complete:
        at_least = "" if found.complete else "at least "
        total = f"{at_least}{len(found.lines)} {found.unit}"
        advice = "" if shown.left == 0 else "; narrow the pattern, path or glob"
        notes.insert(0, f"{len(shown.lines)} of {total} shown{advice}")
    text = shown.text if found.lines else "nothing matches"
    return Observation(text + "".join(f"\n[{note}]" for note in notes), timed_out=found.timed_out)


def _context(call: Call) -> Context:
    around = call.integer("-C", most=_MAX_CONTEXT) or 0
    before, after = (call.integer(name, most=_MAX_CONTEXT) for name in ("-B", "-A"))
    return Context(
        before=around if before is None else before,
        after=around if after is None else after,
        with_numbers=call.flag("-n", default=True),
    )


_DESCRIPTION = (
    "Search files for a regular expression, as ripgrep does, line by line. Hidden and ignored "
    "files are searched too; binary files, links, files over 64 MiB and the folders .git, .hg, "
    r".svn and .bzr are not. \w, \s, \d and case are those of ASCII. Look-around and \p{…} are not "
    "supported."
)
_PARAMETERS = (
    Parameter("pattern", r"The regular expression, such as def \w+\(self.", required=True),
    Parameter("path", "The folder or file to search; the working folder if not given."),
    Parameter("glob", "Only files that match, such as *.py or src/**/*.{c,h}; !*.min.js: others."),
    Parameter("type", f"Only files of a language: {listed_types()}."),
    Parameter(
        "output_mode",
        "files_with_matches (default): paths; content: lines; count: matching lines of each file.",
        choices=(_FILES, _CONTENT, _COUNT),
    ),
    Parameter("-A", "content: lines shown after each match.", ParameterType.INTEGER),
    Parameter("-B", "content: lines shown before each match.", ParameterType.INTEGER),
    Parameter("-C", "content: lines shown before and after each match.", ParameterType.INTEGER),
    Parameter("-n", "content: show line numbers; true if not given.", ParameterType.BOOLEAN),
    Parameter("-i", "Ignore case.", ParameterType.BOOLEAN),
    Parameter(
        "multiline",
        r"Match over line ends, also where the pattern says `.`, as in struct \{[^}]*field.",
        ParameterType.BOOLEAN,
    ),
    Parameter("head_limit", "Show only the first so many results.", ParameterType.INTEGER),
)
