"""Run `grep` in the sandbox over a list of files: which match, how often, and in which lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.face import Call
from swe_rollout.agent.tools.files import MAX_FILE_BYTES, PathKind, look, script
from swe_rollout.agent.tools.marks import new_mark
from swe_rollout.agent.tools.search.pattern import Pattern
from swe_rollout.agent.tools.search.tree import Tree
from swe_rollout.sandbox.base import ExecResult

_MAX_NAMES_BYTES: Final = 6 << 20
_MAX_CONTENT_BYTES: Final = 1 << 20
_MAX_SHOWN_FILES: Final = 500
_MAX_ARGUMENT_BYTES: Final = 64 << 10
_REFUSED: Final = 99
_MAX_SPANNED_FILES: Final = 50
_MAX_MATCHED_BYTES: Final = 256 << 10
"""Maximum bytes of one file's multi-line matches to read."""
_LINE: Final = re.compile(rb"(\d{1,15})([:-])(.*)", re.DOTALL)
# $1 is the folder, followed by grep's options. File names come from stdin, separated by NUL. A file
# with more than one NUL-terminated record is binary.
_MATCHING: Final = f"""
cd -- "$1" && shift || exit
grep "$@" </dev/null >/dev/null || [ $? -eq 1 ] || exit {_REFUSED}
xargs -0 -r grep -l "$@" | tr '\\n' '\\000' | xargs -0 -r grep -c -z -H -e '' --
"""
_COUNTS: Final = 'cd -- "$1" && shift && xargs -0 -r grep -c -H "$@"'
_NUMBERS: Final = 'grep -n "$@" | cut -d : -f 1'
# Arguments: the folder, a mark that no file contains, byte limits for a line and for all output,
# how much to show, what to search for, and the files.
_CONTENT: Final = """
cd -- "$1" || exit
mark=$2 width=$3 limit=$4 before=$5 after=$6 most=$7 flags=$8 pattern=$9
shift 9
for file; do
    printf '\\n%s\\n' "$mark"
    grep -n $flags ${before:+-B} ${before:+"$before"} ${after:+-A} ${after:+"$after"} \\
        ${most:+-m} ${most:+"$most"} -e "$pattern" -- "$file"
done | cut -b "1-$width" | head -c "$limit"
"""


@dataclass(frozen=True, slots=True)
class Context:
    """How much to show around and of matching lines."""

    before: int = 0
    after: int = 0
    line_bytes: int = 2000
    """Approximate maximum bytes to keep of a line."""
    most: int | None = None
    """Maximum matching lines per file."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The text files that match, in order."""

    paths: tuple[bytes, ...]
    binary: int = 0
    """Number of binary files that match."""
    unread: tuple[str, ...] = ()
    """Messages of `grep` about files that it could not read."""
    timed_out: bool = False
    is_cut: bool = False
    """Whether there may be more matches."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an excerpt, cut if it is long."""

    number: int
    is_match: bool
    text: bytes


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of one file around matches; None stands for omitted lines."""

    path: bytes
    lines: tuple[Line | None, ...]


@dataclass(frozen=True, slots=True)
class Excerpts:
    """The excerpts to show of matching files."""

    of_files: tuple[Excerpt, ...]
    notes: tuple[str, ...] = ()
    complete: bool = True
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of matching lines by file, in order."""

    of_files: dict[bytes, int]
    complete: bool = True
    timed_out: bool = False

    @property
    def total(self) -> int:
        """The number of matching lines in all."""
        return sum(self.of_files.values())


async def find_matches(call: Call, pattern: Pattern, tree: Tree) -> Matches:
    """Return the text files that match. Raises ToolError for a pattern that `grep` refuses."""
    if not tree.paths:
        return Matches(())
    result = await _over_files(call, _MATCHING, pattern, tree.folder, tree.paths)
    failed = result.exit_code == _REFUSED or (not result.ok and not result.stdout)
    if failed and not result.timed_out:
        raise ToolError(f"grep failed: {readable(result.stderr)[:300].strip()}")
    records = await off_loop(_counts, result.stdout)
    return Matches(
        tuple(path for path, count in records.items() if count <= 1),
        sum(count > 1 for count in records.values()),
        tuple(readable(result.stderr).splitlines()),
        result.timed_out,
        result.truncated,
    )


async def count_lines(call: Call, pattern: Pattern, tree: Tree, matches: Matches) -> Counts:
    """Return the number of matching lines in each file."""
    if not matches.paths:
        return Counts({}, timed_out=matches.timed_out)
    result = await _over_files(call, _COUNTS, pattern, tree.folder, matches.paths)
    return Counts(
        await off_loop(_counts, result.stdout),
        complete=not (result.timed_out or result.truncated),
        timed_out=result.timed_out or matches.timed_out,
    )


async def matching_lines(
    call: Call, pattern: Pattern, tree: Tree, paths: Sequence[bytes], context: Context
) -> Excerpts:
    """Return the matching lines of as many files as one command line can name."""
    sizes = accumulate(len(path) + 16 for path in paths[:_MAX_SHOWN_FILES])
    count = sum(1 for _ in takewhile(lambda size: size <= _MAX_ARGUMENT_BYTES, sizes))
    if not count:
        return Excerpts(())
    mark = new_mark(16)
    *flags, _, text = pattern.options
    numbers = (context.before, context.after, context.most)
    options = [mark, str(context.line_bytes + 32), str(_MAX_CONTENT_BYTES)]
    options += [*(str(each or "") for each in numbers), " ".join(flags), text]
    files = [f"./{path.decode(errors='surrogateescape')}" for path in paths[:count]]
    words, env = [tree.folder, *options, *files], pattern.env
    result = await script(call, _CONTENT, *words, env=env, max_output=_MAX_CONTENT_BYTES)
    is_cut = result.timed_out or len(result.stdout) >= _MAX_CONTENT_BYTES
    output = result.stdout.rpartition(b"\n")[0] if is_cut else result.stdout
    left = len(paths) - count
    return Excerpts(
        await off_loop(_excerpts, output, mark.encode(), paths),
        (f"more files that match: {left}",) if left else (),
        complete=not (is_cut or left),
        timed_out=result.timed_out,
    )


async def matching_names(call: Call, pattern: Pattern, paths: Sequence[str]) -> list[str]:
    """Return the paths whose last component matches."""
    names = "\n".join(path.rpartition("/")[2].replace("\n", "?") for path in paths) + "\n"
    result = await script(
        call,
        _NUMBERS,
        *pattern.options,
        env=pattern.env,
        stdin=names.encode("utf-8", "surrogateescape"),
        max_output=_MAX_NAMES_BYTES,
    )
    numbers = [int(each) for each in result.stdout.split() if each.isdigit()]
    return [paths[number - 1] for number in numbers if 1 <= number <= len(paths)]


async def _over_files(
    call: Call, text: str, pattern: Pattern, folder: str, paths: Sequence[bytes]
) -> ExecResult:
    return await script(
        call,
        text,
        folder,
        *pattern.options,
        "--",
        env=pattern.env,
        stdin=b"".join(b"./%s\0" % path for path in paths),
        max_output=_MAX_NAMES_BYTES,
    )


def _counts(output: bytes) -> dict[bytes, int]:
    """Parse lines `path:count`, in the order of paths; a path may contain colons."""
    found = {}
    for line in output.split(b"\n"):
        path, _, count = line.rpartition(b":")
        if path and count.isdigit():
            found[path.removeprefix(b"./")] = int(count[:18])
    return dict(sorted(found.items()))


def _excerpts(output: bytes, mark: bytes, paths: Sequence[bytes]) -> tuple[Excerpt, ...]:
    """Parse the output of `grep` for each file, which starts with the mark."""
    parts = output.split(b"\n%s\n" % mark)[1:]
    found = (Excerpt(path, tuple(_lines(each))) for path, each in zip(paths, parts, strict=False))
    return tuple(each for each in found if each.lines)


def _lines(output: bytes) -> Iterator[Line | None]:
    for raw in output.split(b"\n"):
        if found := _LINE.fullmatch(raw):
            yield Line(int(found[1]), found[2] == b":", found[3])
        elif raw == b"--":
            yield None


async def matching_spans(
    call: Call, pattern: Pattern, tree: Tree, paths: Sequence[bytes], context: Context
) -> Excerpts:
    """Return the lines that multi-line matches span, in files up to 4 MiB.

    `grep` returns the matched text, which is located in the file here.
    """
    found: list[Excerpt] = []
    room, is_cut, large, seen = call.context.output_bytes, False, 0, 0
    for path in paths[:_MAX_SPANNED_FILES]:
        if room <= 0 or call.expired:
            break
        seen += 1
        result = await _spans_of(call, pattern, tree, path, context)
        if result is None:
            large += 1
            continue
        found.append(Excerpt(path, result[0]))
        is_cut = is_cut or result[1]
        name = len(tree.shown(path).encode(errors="replace"))
        room -= sum(name + len(each.text) + 8 for each in result[0] if each)
    left = len(paths) - seen
    notes = [f"more files that match: {left}"] if left else []
    if large:
        notes.append(f"files that match, not shown as they are over 4 MiB or gone: {large}")
    return Excerpts(
        tuple(each for each in found if each.lines),
        tuple(notes),
        complete=not (left or is_cut or large),
    )


async def _spans_of(
    call: Call, pattern: Pattern, tree: Tree, path: bytes, context: Context
) -> tuple[tuple[Line | None, ...], bool] | None:
    """Return one file's lines, and whether there are more; None if it is too large or gone."""
    name = path.decode(errors="surrogateescape")
    full = f"{tree.folder.rstrip('/')}/{name}"
    info = await look(call, full)
    if info.kind is not PathKind.FILE or info.size_bytes > MAX_FILE_BYTES:
        return None
    result = await call.sandbox.exec(
        ["grep", "-o", *pattern.options, "--", f"./{name}"],
        cwd=tree.folder,
        env=pattern.env,
        timeout_s=call.remaining_s,
        max_output=_MAX_MATCHED_BYTES,
    )
    data = await call.sandbox.read_file(full)
    matched = result.stdout.split(b"\0")[:-1]
    lines = await off_loop(lambda: tuple(_lines_of_spans(data, matched, context)))
    return lines, result.truncated or result.timed_out


def _lines_of_spans(
    data: bytes, matched: Sequence[bytes], context: Context
) -> Iterator[Line | None]:
    """Yield the lines of matches and their context, as `grep` does."""
    lines = data.removesuffix(b"\n").split(b"\n")
    last = 0
    for match, following in pairwise([*_matching(data, matched), len(lines) + 1]):
        first = max(last + 1, match - context.before)
        if last and first > last + 1 and (context.before or context.after):
            yield None
        last = min(match + context.after, following - 1)
        for number in range(first, last + 1):
            yield Line(number, number == match, lines[number - 1])


def _matching(data: bytes, matched: Sequence[bytes]) -> Iterator[int]:
    """Find matches in order and yield the numbers, from 1, of the lines that they span."""
    at, line, last = 0, 1, 0
    for text in matched:
        start = data.find(text, at)
        if start < 0:
            # Another process has changed the file meanwhile.
            break
        # A line end at the start or end of the match belongs to the lines outside it.
        inner = start + (text[:1] == b"\n" and len(text) > 1)
        line += data.count(b"\n", at, inner)
        at = start + len(text)
        first, last = max(line, last + 1), line + data.count(b"\n", inner, max(inner, at - 1))
        yield from range(first, last + 1)
        line += data.count(b"\n", inner, at)
