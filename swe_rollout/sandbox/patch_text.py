"""Find the files that a diff names, without applying it, and write diffs. Pure; diffs are
untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_GIT = b"diff --git "
_HUNK = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_NAMES = (b"--- ", b"+++ ", b"rename from ", b"rename to ", b"copy from ", b"copy to ")
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_QUOTED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
_GLOB = re.compile(rb"[\\*?\[]")


@dataclass(frozen=True, slots=True)
class _Section:
    """One file's part of a diff: its header lines, and whether all of it is UTF-8."""

    headers: tuple[bytes, ...]
    is_text: bool
    start: int
    end: int
    """The section's bytes in the diff are `[start, end)`."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One file's part of a diff; all parts together are the diff, byte for byte."""

    paths: tuple[str, ...]
    """All paths that the part names, old and new, sorted; empty if it names none.

    Bytes that are not UTF-8 become surrogates.
    """
    data: bytes


def file_diffs(patch: bytes) -> tuple[FileDiff, ...]:
    """Split a diff in git's form into its files."""
    return tuple(
        FileDiff(
            tuple(sorted({path.decode(errors="surrogateescape") for path in _paths(section)})),
            patch[section.start : section.end],
        )
        for section in _sections(patch)
    )


def touched_paths(patch: str) -> tuple[str, ...]:
    """Return every path the diff names, old and new, sorted; relative to the repository.

    Bytes of a path that are not UTF-8 become surrogates.
    """
    data = patch.encode(errors="replace")
    paths = {path for section in _sections(data) for path in _paths(section)}
    return tuple(sorted(path.decode(errors="surrogateescape") for path in paths))


def binary_attributes(patch: bytes) -> bytes:
    """Return git attributes that turn off text diffs for every file whose section is not UTF-8."""
    paths = {p for section in _sections(patch) if not section.is_text for p in _paths(section)}
    return b"".join(b"%s -diff\n" % _pattern(path) for path in sorted(paths))


def _sections(patch: bytes) -> Iterator[_Section]:
    """Split a diff into files; hunks are skipped by their line counts, whatever they contain."""
    headers: list[bytes] = []
    is_text, old, new = True, 0, 0
    start = at = 0
    for line in patch.split(b"\n"):
        starts = line.startswith(_GIT) and old <= 0 and new <= 0
        if starts and headers:
            yield _Section(tuple(headers), is_text, start, at)
            headers, is_text, start = [], True, at
        at += len(line) + 1
        is_text = is_text and is_utf8(line)
        if old > 0 or new > 0:
            old -= line[:1] in (b" ", b"-", b"")
            new -= line[:1] in (b" ", b"+", b"")
        elif match := _HUNK.match(line):
            old, new = (int(count) if count else 1 for count in match.groups())
        elif starts or line.startswith(_NAMES):
            headers.append(line)
    yield _Section(tuple(headers), is_text, start, len(patch))


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _paths(section: _Section) -> Iterator[bytes]:
    found = False
    for line in section.headers:
        kind = next((name for name in _NAMES if line.startswith(name)), None)
        if kind is None:
            continue
        name = line.removeprefix(kind).partition(b"\t")[0].rstrip(b"\r")
        path = unquoted(name)
        if kind in (b"--- ", b"+++ "):
            path = path.partition(b"/")[2] if name != b"/dev/null" else b""
        if path:
            found = True
            yield path
    if not found:
        for line in section.headers:
            yield from _of_git_line(line.removeprefix(_GIT))


def _of_git_line(names: bytes) -> Iterator[bytes]:
    """Yield the path of `diff --git a/P b/P`; only needed when both sides are the same."""
    if names.startswith(b'"') and (token := _TOKEN.match(names)):
        yield unquoted(token[0]).partition(b"/")[2]
    else:
        yield names[: len(names) // 2].partition(b"/")[2]


def unquoted(name: bytes) -> bytes:
    """Decode a path that may be quoted."""
    token = _TOKEN.fullmatch(name)
    return _QUOTED.sub(_unescaped, token[1]) if token else name


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) > 1:
        return bytes([int(code, 8) & 0xFF])
    return bytes([_ESCAPES[code]]) if code in _ESCAPES else code


def quoted(path: bytes) -> bytes:
    """Quote a path as git does: everything but plain ASCII as octal numbers."""
    return b'"%s"' % b"".join(
        bytes([byte]) if byte in range(32, 127) and byte not in b'"\\' else b"\\%03o" % byte
        for byte in path
    )


def written(name: str) -> str:
    """Return a name as it stands in a diff's headers, quoted if it has to be."""
    if _PLAIN.fullmatch(name):
        return name
    return quoted(name.encode(errors="surrogateescape")).decode()


def _pattern(path: bytes) -> bytes:
    """Return a git pattern, quoted, that matches this path alone."""
    return quoted(b"/" + _GLOB.sub(rb"\\\g<0>", path))


def file_diff(path: str, old: str | None, new: str | None) -> str:
    """Return a whole text file's diff in git's format; None stands for a missing file.

    Empty if nothing changes.
    """
    if old == new:
        return ""
    before_name, after_name = written(f"a/{path}"), written(f"b/{path}")
    head = f"diff --git {before_name} {after_name}\n"
    if old is None:
        head += "new file mode 100644\n"
    if new is None:
        head += "deleted file mode 100644\n"
    before, after = _git_lines(old or ""), _git_lines(new or "")
    if not before and not after:
        return head
    return (
        f"{head}--- {'/dev/null' if old is None else before_name}\n"
        f"+++ {'/dev/null' if new is None else after_name}\n"
        f"@@ -{_range(before)} +{_range(after)} @@\n"
        f"{''.join(f'-{line}' for line in before)}{''.join(f'+{line}' for line in after)}"
    )


def _git_lines(text: str) -> list[str]:
    """Return lines as git splits them, with their line endings."""
    lines = text.split("\n")
    last = lines.pop()
    ended = [f"{line}\n" for line in lines]
    return [*ended, f"{last}\n\\ No newline at end of file\n"] if last else ended


def _range(lines: list[str]) -> str:
    return f"1,{len(lines)}" if lines else "0,0"
