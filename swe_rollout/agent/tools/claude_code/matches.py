"""Run `grep` in the sandbox over a list of files: which match, how often, and in which lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.claude_code.call import Call
from swe_rollout.agent.tools.claude_code.candidates import Candidates
from swe_rollout.agent.tools.claude_code.ere import Ere
from swe_rollout.agent.tools.claude_code.text import MAX_LINE_BYTES, shown_line
from swe_rollout.agent.tools.marks import new_mark
from swe_rollout.sandbox.base import ExecResult

ENV: Final = {"LC_ALL": "C", "GREP_OPTIONS": "", "GREP_COLORS": ""}
"""Text is bytes: in another locale, `grep` would skip files of another encoding."""
_MAX_NAMES_BYTES = 6 << 20
_MAX_CONTENT_BYTES = 1 << 20
_MAX_SHOWN_FILES = 500
_MAX_ARGUMENT_BYTES = 64 << 10
_REFUSED = 99
# $1: the folder; then options of grep. Files come by stdin, each ended by NUL. A file with more
# than one record that NUL ends is binary.
_MATCHING = """
cd -- "$1" && shift || exit
grep "$@" </dev/null >/dev/null || [ $? -eq 1 ] || exit 99
xargs -0 -r grep -l "$@" | tr '\\n' '\\000' | xargs -0 -r grep -c -z -H -e '' --
"""
_COUNTS = 'cd -- "$1" && shift && xargs -0 -r grep -c -H "$@"'
# Arguments: the folder, a mark that no file holds, bounds of a line and of all, what grep is to do,
# and files.
_CONTENT = """
cd -- "$1" || exit
mark=$2 width=$3 limit=$4 pattern=$5 case=$6 before=$7 after=$8
shift 8
for file; do
    printf '%s\\n' "$mark"
    grep -n ${case:+-i} ${before:+-B} ${before:+"$before"} ${after:+-A} ${after:+"$after"} \\
        -E -e "$pattern" -- "$file"
done | cut -b "1-$width" | head -c "$limit"
"""


@dataclass(frozen=True, slots=True)
class Context:
    """What is shown around a matching line."""

    before: int = 0
    after: int = 0
    with_numbers: bool = True


@dataclass(frozen=True, slots=True)
class Matches:
    """The files that match."""

    paths: tuple[bytes, ...]
    notes: tuple[str, ...] = ()
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a result, and whether they are all."""

    lines: Sequence[str]
    notes: tuple[str, ...] = ()
    complete: bool = True
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for, and where."""

    pattern: Ere
    candidates: Candidates


async def find_matches(call: Call, search: Search) -> Matches:
    """Return the text files with a line that matches; ToolError for a pattern `grep` refuses."""
    if not search.candidates.paths:
        return Matches(())
    result = await _over_files(call, _MATCHING, search, search.candidates.paths)
    failed = result.exit_code == _REFUSED or (not result.ok and not result.stdout)
    if failed and not result.timed_out:
        raise ToolError(f"grep failed: {readable(result.stderr)[:300].strip()}")
    found = await off_loop(_counts, result.stdout)
    notes = []
    if result.timed_out or result.truncated:
        notes.append("the search was stopped before its end: narrow the path or glob")
    if unread := result.stderr.count(b"\n"):
        notes.append(f"files not read: {unread}, such as {readable(result.stderr)[:100].strip()}")
    if binary := sum(count > 1 for _, count in found):
        notes.append(f"binary files that match, not shown: {binary}")
    return Matches(await off_loop(_text_files, found), tuple(notes), timed_out=result.timed_out)


async def counted(call: Call, search: Search, matches: Matches) -> Lines:
    """Return how many lines of each file match."""
    if not matches.paths:
        return Lines([], timed_out=matches.timed_out)
    result = await _over_files(call, _COUNTS, search, matches.paths)
    counts = sorted(await off_loop(_counts, result.stdout))
    prefix = search.candidates.prefix
    lines = [f"{prefix}{readable(path)}:{count}" for path, count in counts]
    complete = not (result.timed_out or result.truncated)
    total = sum(count for _, count in counts)
    return Lines(
        lines,
        (f"matching lines in all: {total}",),
        complete=complete,
        timed_out=result.timed_out or matches.timed_out,
    )


async def matching_lines(call: Call, search: Search, matches: Matches, context: Context) -> Lines:
    """Return the matching lines, of as many files as one command may name."""
    sizes = accumulate(len(path) + 16 for path in matches.paths[:_MAX_SHOWN_FILES])
    count = sum(1 for _ in takewhile(lambda size: size <= _MAX_ARGUMENT_BYTES, sizes))
    paths = matches.paths[:count]
    if not paths:
        return Lines([])
    candidates, pattern = search.candidates, search.pattern
    mark = new_mark(16)
    options = [
        *(mark, str(MAX_LINE_BYTES + 32), str(_MAX_CONTENT_BYTES)),
        *(pattern.pattern, "i" if pattern.ignores_case else ""),
        *(str(context.before or ""), str(context.after or "")),
    ]
    files = [f"./{path.decode(errors='surrogateescape')}" for path in paths]
    result = await call.sandbox.exec(
        ["/bin/sh", "-c", _CONTENT, "sh", candidates.folder, *options, *files],
        env=ENV,
        timeout_s=call.remaining_s,
        max_output=_MAX_CONTENT_BYTES,
    )
    names = [f"{candidates.prefix}{readable(path)}" for path in paths]
    is_cut = result.timed_out or len(result.stdout) >= _MAX_CONTENT_BYTES
    output = result.stdout.rpartition(b"\n")[0] if is_cut else result.stdout.removesuffix(b"\n")
    lines = await off_loop(_parsed, output, mark.encode(), names, context)
    left = len(matches.paths) - count
    notes = (f"more files that match: {left}",) if left else ()
    complete = not (is_cut or left)
    return Lines(lines, notes, complete=complete, timed_out=result.timed_out)


async def _over_files(
    call: Call, script: str, search: Search, paths: Sequence[bytes]
) -> ExecResult:
    pattern = search.pattern
    options = [*flags_of(pattern), "-E", "-e", pattern.pattern, "--"]
    return await call.sandbox.exec(
        ["/bin/sh", "-c", script, "sh", search.candidates.folder, *options],
        env=ENV,
        stdin=b"".join(b"./%s\0" % path for path in paths),
        timeout_s=call.remaining_s,
        max_output=_MAX_NAMES_BYTES,
    )


def _text_files(found: Sequence[tuple[bytes, int]]) -> tuple[bytes, ...]:
    return tuple(sorted(path for path, records in found if records <= 1))


def flags_of(pattern: Ere) -> list[str]:
    """Return the options of `grep` that a pattern needs."""
    case = ["-i"] if pattern.ignores_case else []
    return [*case, "-z"] if pattern.is_multiline else case


def _counts(output: bytes) -> list[tuple[bytes, int]]:
    """Read lines `path:count`; the path may hold colons."""
    found = []
    for line in output.split(b"\n"):
        path, _, count = line.rpartition(b":")
        if path and count.isdigit():
            found.append((path.removeprefix(b"./"), int(count[:18])))
    return found


def _parsed(output: bytes, mark: bytes, names: Sequence[str], context: Context) -> list[str]:
    """Put the name of its file before each line; the mark is printed before each file."""
    return list(_named_lines(output, mark, iter(names), context))


def _named_lines(
    output: bytes, mark: bytes, names: Iterator[str], context: Context
) -> Iterator[str]:
    name, is_first = "", True
    for line in output.split(b"\n"):
        if line == mark:
            name = next(names, "")
            if (context.before or context.after) and not is_first:
                yield "--"
            is_first = False
            continue
        digits = line[: len(line) - len(line.lstrip(b"0123456789"))]
        sign = line[len(digits) : len(digits) + 1].decode(errors="replace")
        if not digits:
            yield readable(line)
            continue
        number = f"{digits.decode()}{sign}" if context.with_numbers else ""
        yield f"{name}{sign}{number}{shown_line(line[len(digits) + 1 :])}"
