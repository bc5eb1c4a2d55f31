"""The faces of the search: `search`, R2E-Gym's `r2e_search`, and those of VERL's coding agents.

Counts cover everything that was searched, however much of it is shown; an incomplete search says
why.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from typing import Annotated, Final

from pydantic import Field, validate_call

from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec, readable
from swe_rollout.agent.tools.face import Call, Face, renamed
from swe_rollout.agent.tools.files import PathKind
from swe_rollout.agent.tools.search.glob import Glob
from swe_rollout.agent.tools.search.grep import (
    Context,
    Counts,
    Excerpt,
    count_lines,
    find_matches,
    matching_lines,
    matching_names,
)
from swe_rollout.agent.tools.search.pattern import Pattern, plain, translate
from swe_rollout.agent.tools.search.tree import (
    Entry,
    Tree,
    Walk,
    files_below,
    named,
    prefix_of,
    selected,
    start_of,
    walk,
)
from swe_rollout.types.turn import Observation

SKIPPED: Final = (
    *(".git", ".hg", ".svn", ".bzr", ".tox", ".venv", "node_modules"),
    *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
)
"""Folders that a search skips below its start."""
_SKIPS: Final = f"Not searched: {', '.join(SKIPPED)} below the path, and binary files."
_PRUNE: Final = ("-type", "d", "(", *named(SKIPPED), ")")
_LINE_BYTES: Final = 400
"""Maximum bytes to show of one line."""
_MOST_RESULTS: Final = 1000
_MOST_AROUND: Final = 20
_MOST: Final = 100
_AROUND: Final = 2
_GLOB: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a text search: where, and how many lines of each file match."""

    pattern: Pattern
    tree: Tree
    counts: Counts
    notes: tuple[str, ...]


def _pattern(call: Call, name: str, *, ignores_case: bool = False) -> Pattern:
    """Return the pattern of a call: plain text, unless it says that it is a regular expression."""
    text = call.text(name) or ""
    given = plain(text, ignores_case=ignores_case, whole_words=call.flag("whole_words"))
    if not call.flag("regex"):
        return given
    try:
        regex = translate(text)
    except ToolError as error:
        raise ToolError(f"the pattern is no regular expression: {error}") from error
    case = ignores_case or regex.ignores_case
    return Pattern(regex.text, ignores_case=case, whole_words=given.whole_words)


def _like(pattern: str, *, ignores_case: bool = False) -> Callable[[str], bool]:
    """Return a filter for paths whose name, or whose end for a pattern with `/`, matches."""
    return Glob.of(f"**/{pattern.lstrip('/')}", ignores_case=ignores_case).matches


async def _search(
    call: Call, pattern: Pattern, path: str, accepts: Callable[[str], bool]
) -> _Found:
    tree = await files_below(call, path, accepts, prune=_PRUNE)
    matches = await find_matches(call, pattern, tree)
    counts = await count_lines(call, pattern, tree, matches)
    notes = list(_problems(call, tree.walked, matches.unread, timed_out=counts.timed_out))
    if matches.is_cut or not counts.complete:
        notes.append("the list of results is too long: there are more")
    return _Found(pattern, tree, counts, (*notes, *tree.notes))


def _problems(
    call: Call, walked: Walk, unread: Sequence[str] = (), *, timed_out: bool = False
) -> Iterator[str]:
    """Yield the reasons why a search is incomplete."""
    if walked.timed_out or timed_out:
        seconds = call.context.timeout_s
        yield f"the search was stopped after {seconds:g} s: there may be more"
    if lines := [*walked.unread, *unread]:
        yield f"{len(lines)} could not be read ({lines[0][:160]})"


async def _text_lines(call: Call, found: _Found, *, most: int, around: int = 0) -> Observation:
    """Show the first `most` matching lines, each with `around` lines of context."""
    # Only as many files as are needed for that many lines.
    before = accumulate(found.counts.of_files.values(), initial=0)
    counted = zip(found.counts.of_files, before, strict=False)
    files = [path for path, _ in takewhile(lambda each: each[1] < most, counted)]
    context = Context(around, around, _LINE_BYTES, most)
    excerpts = await matching_lines(call, found.pattern, found.tree, files, context)
    parts, shown = list[str](), 0
    for each in excerpts.of_files:
        lines, count = _lines(each, most - shown)
        parts.append("\n".join([found.tree.shown(each.path), *lines]))
        shown += count
        if shown == most:
            break
    total, in_files = found.counts.total, _count(len(found.counts.of_files), "file")
    head = f"{_count(total, 'matching line')} in {in_files}"
    if shown < total:
        head += f"; the first {shown}, in {_count(len(parts), 'file')}, are shown"
    return _observation(head, found.notes, parts)


def _lines(excerpt: Excerpt, most: int) -> tuple[list[str], int]:
    """Return the lines of one file up to its match number `most`, and how many matches it has."""
    lines, matches = list[str](), 0
    for line in excerpt.lines:
        if line is None:
            lines += ["   ..."] if lines else []
            continue
        if line.is_match and matches == most:
            break
        matches += line.is_match
        more = " [...]" if len(line.text) > _LINE_BYTES else ""
        text = readable(line.text[:_LINE_BYTES])
        lines.append(f"{line.number:6}{':' if line.is_match else '-'}{text}{more}")
    return lines, matches


async def _names(
    call: Call,
    pattern: Pattern,
    path: str,
    ends: tuple[str, ...] = (),
    *,
    most: int,
    folders: bool = False,
) -> Observation:
    """Show the first `most` files, or folders, whose name contains a text or matches it."""
    info = await start_of(call, path)
    folder = info.path
    if info.kind is PathKind.DIRECTORY:
        walked = await walk(call, folder, prune=_PRUNE, files_only=not folders)
    else:
        folder, name = posixpath.split(folder)
        walked = Walk((Entry(name.encode(errors="replace"), is_marked=False),), complete=True)
    entries = [each for each in walked.entries if each.is_marked or not folders]
    if by_wildcards := pattern.is_fixed and _GLOB.search(pattern.text) is not None:
        accepts = _like(pattern.text, ignores_case=pattern.ignores_case)
        entries = await selected(entries, accepts)
    prefix = prefix_of(call, folder)
    paths = sorted(each.path.decode("utf-8", "surrogateescape") for each in entries)
    paths = [f"{prefix}{each}" for each in paths if not ends or folders or each.endswith(ends)]
    if not by_wildcards and paths:
        paths = await matching_names(call, pattern, paths)
    head = _count(len(paths), "folder" if folders else "file")
    if len(paths) > most:
        head += f"; the first {most} are shown"
    notes = list(_problems(call, walked))
    if not walked.complete and not walked.timed_out:
        notes.append(f"names looked at, which are not all: {len(walked.entries)}; name a path")
    shown = [readable(each.encode("utf-8", "surrogateescape")) for each in paths[:most]]
    return _observation(head, notes, shown)


def _observation(head: str, notes: Sequence[str], parts: Sequence[str]) -> Observation:
    return Observation("\n".join([head, *(f"note: {each}" for each in notes), *parts]))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


MaxResults = Annotated[
    int,
    Field(ge=1, le=_MOST_RESULTS, description="Shown at most where the policy gives no number."),
]
ContextLines = Annotated[
    int,
    Field(
        ge=0,
        le=_MOST_AROUND,
        description="Shown before and after a matching line where the policy gives no number.",
    ),
]


@validate_call
def search(*, max_results: MaxResults = 100, context_lines: ContextLines = 2) -> Face:
    """Offer `search`: find text in files, and files and folders by name."""

    async def act(call: Call) -> Observation:
        pattern = _pattern(call, "pattern", ignores_case=not call.flag("case_sensitive"))
        path, command = call.text("path") or ".", call.text("command")
        most = call.integer("max_results", least=1, most=_MOST_RESULTS) or max_results
        ends = tuple(f".{each.lstrip('*.')}" for each in call.items("file_extensions"))
        if command != "search_text":
            is_dir = command == "search_dir"
            return await _names(call, pattern, path, ends, most=most, folders=is_dir)
        around = call.integer("context_lines", most=_MOST_AROUND)
        around = context_lines if around is None else around
        found = await _search(call, pattern, path, lambda name: not ends or name.endswith(ends))
        return await _text_lines(call, found, most=most, around=around)

    return Face(_spec(max_results, context_lines), act)


def _spec(max_results: int, context_lines: int) -> ToolSpec:
    return ToolSpec(
        "search",
        "Search files.\n"
        "* search_text: lines that have the text `pattern` in the files below `path`.\n"
        "* search_files, search_dir: files, or folders, whose name has `pattern`, or is like "
        "it where it has wildcards (*.py, src/**/test_*.py).\n"
        f"All results are counted, the first ones shown. {_SKIPS}",
        (
            Parameter(
                "command",
                "What to search for.",
                required=True,
                choices=("search_text", "search_files", "search_dir")
            ),
            Parameter("pattern", "The text or name; upper and lower case are the same unless "
                      "case_sensitive.", required=True),
            Parameter("path", "The folder or file to search, such as src.", required=True),
            Parameter("case_sensitive", "Whether case matters; default false.",
                      ParameterType.BOOLEAN),
            Parameter("regex", "Whether the pattern is a POSIX extended regular expression; "
                      "default false.", ParameterType.BOOLEAN),
            Parameter("whole_words", "search_text: whether only whole words match; default "
                      "false.", ParameterType.BOOLEAN),
            Parameter("max_results", f"How many results to show; default {max_results}.",
                      ParameterType.INTEGER),
            Parameter("file_extensions", "Only files that end so, such as [py, toml].",
                      ParameterType.STRINGS),
            Parameter("context_lines", "search_text: lines to show before and after each; "
                      f"default {context_lines}.", ParameterType.INTEGER),
        ),
    )  # fmt: skip


k8s_search = renamed(search, "k8s_search")


async def _search_code(call: Call) -> Observation:
    names = call.text("file_pattern")
    pattern = _pattern(call, "query", ignores_case=not call.flag("case_sensitive"))
    found = await _search(call, pattern, ".", _like(names or "*"))
    return await _text_lines(call, found, most=_MOST, around=_AROUND)


async def _search_files(call: Call) -> Observation:
    return await _names(call, _pattern(call, "pattern"), call.text("directory") or ".", most=_MOST)


async def _r2e_search(call: Call) -> Observation:
    names = "*.py" if call.flag("python_only") else "*"
    pattern = _pattern(call, "search_term")
    found = await _search(call, pattern, call.text("path") or ".", _like(names))
    if found.tree.is_one_file and found.counts.of_files:
        return await _text_lines(call, found, most=_MOST_RESULTS)
    counts = found.counts.of_files
    head = f"{found.counts.total} matching lines in {len(counts)} files"
    if len(counts) > _MOST_RESULTS:
        head += f"; the first {_MOST_RESULTS} files are shown"
    shown = islice(counts.items(), _MOST_RESULTS)
    lines = [f"{found.tree.shown(path)} ({count})" for path, count in shown]
    return _observation(head, found.notes, lines)


SEARCH_CODE: Final = Face.of(
    _search_code,
    "search_code",
    f"Search the files of the repository for a text. All matching lines are counted, the first "
    f"{_MOST} shown. {_SKIPS}",
    Parameter("query", "The text.", required=True),
    Parameter("file_pattern", "Only files whose name is like this, such as *.py."),
    Parameter("case_sensitive", "Whether case matters; default false.", ParameterType.BOOLEAN),
)
SEARCH_FILES: Final = Face.of(
    _search_files,
    "search_files",
    "Find files whose name has the pattern, or is like it where it has wildcards.",
    Parameter("pattern", "Such as test_*.py or src/**/conf*.", required=True),
    Parameter("directory", "The folder to search; default: the repository."),
)
R2E_SEARCH: Final = Face.of(
    _r2e_search,
    "r2e_search",
    "Search for a text. In a folder: the files that have it, each with its number of "
    f"lines. In a file: these lines with their numbers. Case matters. {_SKIPS}",
    Parameter("search_term", "The text.", required=True),
    Parameter("path", "The file or folder; default: where commands start."),
    Parameter(
        "python_only",
        "In a folder: whether to search only files that end in .py; default false.",
        ParameterType.BOOLEAN,
    ),
)
