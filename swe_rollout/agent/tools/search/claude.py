"""Claude Code's face of the search: `Grep`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from pydantic import Field, validate_call

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError
from swe_rollout.agent.tools.face import Call, Face
from swe_rollout.agent.tools.lines import page, shown_line
from swe_rollout.agent.tools.search.glob import TYPES, Glob
from swe_rollout.agent.tools.search.grep import (
    Context,
    Excerpt,
    Matches,
    count_lines,
    find_matches,
    matching_lines,
    matching_spans,
)
from swe_rollout.agent.tools.search.pattern import Pattern, translate
from swe_rollout.agent.tools.search.tree import REPOSITORY_FOLDERS, Tree, files_below, named
from swe_rollout.types.turn import Observation

_PRUNE: Final = named(REPOSITORY_FOLDERS)
_MAX_CONTEXT: Final = 100
_FILES, _CONTENT, _COUNT = "files_with_matches", "content", "count"
_PLAIN: Final = {
    "-A": "after",
    "-B": "before",
    "-C": "around",
    "-n": "line_numbers",
    "-i": "ignore_case",
}


@dataclass(frozen=True, slots=True)
class _Shown:
    """Lines to show, and the data for a note on them."""

    lines: Sequence[str]
    unit: str
    """What each line stands for: a file, a line or a count."""
    notes: Sequence[str] = ()
    complete: bool = True
    """Whether `lines` are all results."""
    timed_out: bool = False


@validate_call
def grep(
    *,
    plain_names: Annotated[
        bool,
        Field(description="Whether `-A` is `after` and so on, for policies that call in Python."),
    ] = False,
) -> Face:
    """Offer `Grep`: ripgrep's patterns and output modes, with the programs of the image."""
    dashed = {plain: name for name, plain in _PLAIN.items()} if plain_names else {}
    offered = _PLAIN if plain_names else {}

    async def act(call: Call) -> Observation:
        arguments = {dashed.get(name, name): each for name, each in call.arguments.items()}
        return await _grep(call.given(arguments))

    parameters = (replace(each, name=offered.get(each.name, each.name)) for each in _PARAMETERS)
    return Face.of(act, "Grep", _DESCRIPTION, *parameters)


async def _grep(call: Call) -> Observation:
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
    tree = await files_below(call, call.text("path") or ".", _chosen(call), prune=_PRUNE)
    matches = await find_matches(call, pattern, tree)
    shown = await _shown(call, pattern, tree, matches, context)
    shown = replace(shown, notes=[*tree.notes, *_notes(matches), *shown.notes])
    return await off_loop(_observation, shown, limit, call.context.output_bytes)


def _chosen(call: Call) -> Callable[[str], bool]:
    """Return a filter for the relative paths that a call's `glob` and `type` accept."""
    text, kind = call.text("glob"), call.text("type")
    if kind is not None and kind not in TYPES:
        raise ToolError(f"there is no type {kind[:80]!r}; there are {', '.join(TYPES)}")
    of_type = Glob.of("*" if kind is None else TYPES[kind], anywhere=True)
    if not text:
        return of_type.matches
    is_negated = text.startswith("!")
    glob = Glob.of(text.removeprefix("!").removeprefix("/"), anywhere=True)
    return lambda path: of_type.matches(path) and glob.matches(path) is not is_negated


def _context(call: Call) -> Context:
    around = call.integer("-C", most=_MAX_CONTEXT) or 0
    before, after = (call.integer(name, most=_MAX_CONTEXT) for name in ("-B", "-A"))
    return Context(around if before is None else before, around if after is None else after)


def _notes(matches: Matches) -> Iterator[str]:
    if matches.timed_out or matches.is_cut:
        yield "the search was stopped before its end: narrow the path or glob"
    if unread := matches.unread:
        yield f"files not read: {len(unread)}, such as {unread[0][:100].strip()}"
    if matches.binary:
        yield f"binary files that match, not shown: {matches.binary}"


async def _shown(
    call: Call, pattern: Pattern, tree: Tree, matches: Matches, context: Context
) -> _Shown:
    match call.text("output_mode"):
        case "content":
            return await _content(call, pattern, tree, matches, context)
        case "count":
            counts = await count_lines(call, pattern, tree, matches)
            lines = [f"{tree.shown(path)}:{count}" for path, count in counts.of_files.items()]
            note = [f"matching lines in all: {counts.total}"] if lines else []
            return _Shown(lines, "counts", note, counts.complete)
        case _:
            lines = [tree.shown(path) for path in matches.paths]
            return _Shown(lines, "files", timed_out=matches.timed_out)


async def _content(
    call: Call, pattern: Pattern, tree: Tree, matches: Matches, context: Context
) -> _Shown:
    find = matching_spans if pattern.is_multiline else matching_lines
    found = await find(call, pattern, tree, matches.paths, context)
    write = partial(
        _named_lines,
        with_numbers=call.flag("-n", default=True),
        separated=bool(context.before or context.after),
    )
    lines = await off_loop(write, found.of_files, tree)
    timed_out = matches.timed_out or found.timed_out
    return _Shown(lines, "lines", found.notes, found.complete, timed_out)


def _named_lines(
    excerpts: Sequence[Excerpt], tree: Tree, *, with_numbers: bool, separated: bool
) -> list[str]:
    """Return lines as `grep` writes them, each with the name of its file."""
    lines: list[str] = []
    for excerpt in excerpts:
        if lines and separated:
            lines.append("--")
        name = tree.shown(excerpt.path)
        for line in excerpt.lines:
            if line is None:
                lines.append("--")
                continue
            sign = ":" if line.is_match else "-"
            number = f"{line.number}{sign}" if with_numbers else ""
            lines.append(f"{name}{sign}{number}{shown_line(line.text)}")
    return lines


def _observation(found: _Shown, head_limit: int | None, output_bytes: int) -> Observation:
    notes = list(found.notes)
    room = output_bytes - sum(len(note.encode(errors="replace")) + 3 for note in notes)
    # 0 means no limit, as its users expect.
    chosen = found.lines[:head_limit] if head_limit else found.lines
    shown = page(chosen, room)
    if len(shown.lines) < len(found.lines) or not found.complete:
        at_least = "" if found.complete else "at least "
        total = f"{at_least}{len(found.lines)} {found.unit}"
        advice = "" if shown.left == 0 else "; narrow the pattern, path or glob"
        notes.insert(0, f"{len(shown.lines)} of {total} shown{advice}")
    text = shown.text if found.lines else "nothing matches"
    return Observation(text + "".join(f"\n[{note}]" for note in notes), timed_out=found.timed_out)


_DESCRIPTION: Final = (
    "Search files for a regular expression, as ripgrep does, line by line. Hidden and ignored "
    "files are searched too; binary files, links, files over 64 MiB and the folders .git, .hg, "
    r".svn and .bzr are not. \w, \s, \d and case are those of ASCII. Look-around and \p{…} are not "
    "supported."
)
_PARAMETERS: Final = (
    Parameter("pattern", r"The regular expression, such as def \w+\(self.", required=True),
    Parameter("path", "The folder or file to search; the working folder if not given."),
    Parameter("glob", "Only files that match, such as *.py or src/**/*.{c,h}; !*.min.js: others."),
    Parameter("type", f"Only files of a language: {', '.join(TYPES)}."),
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
