"""The lines of matches that span several: `grep` says what matches, and here it is found again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import readable
from swe_rollout.agent.tools.claude_code.call import Call
from swe_rollout.agent.tools.claude_code.files import MAX_FILE_BYTES
from swe_rollout.agent.tools.claude_code.matches import (
    ENV,
    Context,
    Lines,
    Matches,
    Search,
    flags_of,
)
from swe_rollout.agent.tools.claude_code.text import shown_line
from swe_rollout.agent.tools.paths import PathKind, look

_MAX_FILES: Final = 50
_MAX_MATCHED_BYTES: Final = 256 << 10
"""Of the matches of one file."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Lines of a file, from 1."""

    first: int
    last: int


async def matching_spans(call: Call, search: Search, matches: Matches, context: Context) -> Lines:
    """Return the lines that matches span, of files up to 4 MiB."""
    lines: list[str] = []
    room, is_cut, large = call.context.output_bytes, False, 0
    shown = 0
    for path in matches.paths[:_MAX_FILES]:
        if room <= 0 or call.expired:
            break
        shown += 1
        found = await _spans_of(call, search, path, context)
        if found is None:
            large += 1
            continue
        if lines and found.lines and (context.before or context.after):
            lines.append("--")
        lines += found.lines
        is_cut = is_cut or not found.complete
        room -= sum(len(line.encode(errors="replace")) + 1 for line in found.lines)
    left = len(matches.paths) - shown
    notes = [f"more files that match: {left}"] if left else []
    if large:
        notes.append(f"files that match, not shown as they are over 4 MiB or gone: {large}")
    return Lines(lines, tuple(notes), complete=not (left or is_cut or large))


async def _spans_of(call: Call, search: Search, path: bytes, context: Context) -> Lines | None:
    """Return the lines of one file; none: it is too large, or gone."""
    name = path.decode(errors="surrogateescape")
    folder, pattern = search.candidates.folder, search.pattern
    full = f"{folder.rstrip('/')}/{name}"
    info = await look(call.sandbox, full, timeout_s=call.remaining_s)
    if info.kind is not PathKind.FILE or info.size_bytes > MAX_FILE_BYTES:
        return None
    result = await call.sandbox.exec(
        ["grep", "-o", *flags_of(pattern), "-E", "-e", pattern.pattern, "--", f"./{name}"],
        cwd=folder,
        env=ENV,
        timeout_s=call.remaining_s,
        max_output=_MAX_MATCHED_BYTES,
    )
    data = await call.sandbox.read_file(full)
    shown = f"{search.candidates.prefix}{readable(path)}"
    lines = await off_loop(_lines, data, result.stdout.split(b"\0")[:-1], shown, context)
    return Lines(lines, complete=not (result.truncated or result.timed_out))


def _lines(data: bytes, matched: Sequence[bytes], name: str, context: Context) -> list[str]:
    """Write the lines of matches and those around them, as `grep` writes them."""
    ranges = list(_ranges(data, matched))
    lines = data.removesuffix(b"\n").split(b"\n")
    done: list[str] = []
    last = 0
    for at, each in enumerate(ranges):
        first = max(last + 1, each.first - context.before)
        if done and first > last + 1 and (context.before or context.after):
            done.append("--")
        following = ranges[at + 1].first if at + 1 < len(ranges) else len(lines) + 1
        last = min(each.last + context.after, len(lines), max(each.last, following - 1))
        for number in range(first, last + 1):
            sign = ":" if each.first <= number <= each.last else "-"
            shown = f"{number}{sign}" if context.with_numbers else ""
            done.append(f"{name}{sign}{shown}{shown_line(lines[number - 1])}")
    return done


def _ranges(data: bytes, matched: Sequence[bytes]) -> Iterator[_Range]:
    """Find matches one after the other, and yield the lines they span; joined where they touch."""
    at, line = 0, 1
    current: _Range | None = None
    for text in matched:
        start = data.find(text, at)
        if start < 0:
            # Another process has changed the file meanwhile.
            break
        # A line end that the match begins or ends with belongs to the lines outside it.
        inner = start + (text[:1] == b"\n" and len(text) > 1)
        line += data.count(b"\n", at, inner)
        at = start + len(text)
        last = line + data.count(b"\n", inner, max(inner, at - 1))
        if current is not None and line <= current.last:
            current = _Range(current.first, max(current.last, last))
        else:
            if current is not None:
                yield current
            current = _Range(line, last)
        line += data.count(b"\n", inner, at)
    if current is not None:
        yield current
