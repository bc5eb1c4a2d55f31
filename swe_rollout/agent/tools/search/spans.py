"""Find the lines of multi-line matches: `grep` returns the matched text, which is located here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.face import Call
from swe_rollout.agent.tools.files import MAX_FILE_BYTES, PathKind, look
from swe_rollout.agent.tools.search.grep import Context, Excerpt, Excerpts, Line
from swe_rollout.agent.tools.search.pattern import Pattern
from swe_rollout.agent.tools.search.tree import Tree

_MAX_FILES: Final = 50
_MAX_MATCHED_BYTES: Final = 256 << 10
"""Maximum bytes of one file's matches to read."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of a file's lines, from 1."""

    first: int
    last: int


async def matching_spans(
    call: Call, pattern: Pattern, tree: Tree, paths: Sequence[bytes], context: Context
) -> Excerpts:
    """Return the lines that matches span, in files up to 4 MiB."""
    found: list[Excerpt] = []
    room, is_cut, large, seen = call.context.output_bytes, False, 0, 0
    for path in paths[:_MAX_FILES]:
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
    lines = await off_loop(lambda: tuple(_lines(data, matched, context)))
    return lines, result.truncated or result.timed_out


def _lines(data: bytes, matched: Sequence[bytes], context: Context) -> Iterator[Line | None]:
    """Yield the lines of matches and their context, as `grep` does."""
    ranges = list(_ranges(data, matched))
    lines = data.removesuffix(b"\n").split(b"\n")
    last = 0
    for at, each in enumerate(ranges):
        first = max(last + 1, each.first - context.before)
        if last and first > last + 1 and (context.before or context.after):
            yield None
        following = ranges[at + 1].first if at + 1 < len(ranges) else len(lines) + 1
        last = min(each.last + context.after, len(lines), max(each.last, following - 1))
        for number in range(first, last + 1):
            yield Line(number, each.first <= number <= each.last, lines[number - 1])


def _ranges(data: bytes, matched: Sequence[bytes]) -> Iterator[_Range]:
    """Find matches in order and yield the lines they span, merging ranges that touch."""
    at, line = 0, 1
    current: _Range | None = None
    for text in matched:
        start = data.find(text, at)
        if start < 0:
            # Another process has changed the file meanwhile.
            break
        # A line end at the start or end of the match belongs to the lines outside it.
        inner = start + (text[:1] == b"\n" and len(text) > 1)
        line += data.count(b"\n", at, inner)
        at = start + len(text)
        last = line + data.count(b"\n", inner, max(inner, at - 1))
        if current is not None and line > current.last:
            yield current
            current = None
        current = _Range(current.first, max(current.last, last)) if current else _Range(line, last)
        line += data.count(b"\n", inner, at)
    if current is not None:
        yield current
