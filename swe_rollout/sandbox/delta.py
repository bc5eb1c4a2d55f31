"""A delta: changed files as text in git's patch format, each one whole. Pure.

For work outside a git repository. The earlier contents are not known, so a changed file is written
as a new one, and a removed file by its name alone. Paths are absolute, without their leading slash.
People, viewers and `patch_text` read a delta like a diff; `parse` accepts only what `write` writes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from swe_rollout.sandbox.patch_text import unquoted, written

_NO_NEWLINE = "\\ No newline at end of file"
_CHUNK = 52
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HEAD = re.compile(r'diff --git ("a/.*"|a/.*) ("b/.*"|b/.*)')
_MAX_FILE_BYTES = 64 << 20


class Kind(StrEnum):
    """The kind of file at a path; the values are git's modes."""

    FILE = "100644"
    PROGRAM = "100755"
    LINK = "120000"
    FOLDER = "040000"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path that differs."""

    path: str
    """The path without its leading slash; bytes that are not UTF-8 become surrogates."""
    kind: Kind
    data: bytes = b""
    """The content of a file, or the target of a link."""


class DeltaError(ValueError):
    """The text is not a delta."""


def write(entries: Iterable[Entry]) -> str:
    """Write the entries, sorted by path; always UTF-8, without loss."""
    ordered = sorted(entries, key=lambda entry: entry.path)
    return "".join(f"{line}\n" for entry in ordered for line in _lines(entry))


def parse(text: str) -> tuple[Entry, ...]:
    """Read the entries back. Raises DeltaError, with the line, for anything else."""
    lines = text.split("\n")
    if lines.pop() != "":
        raise DeltaError("the last line is cut")
    reader = _Reader(lines)
    entries = []
    while reader.at < len(lines):
        try:
            entries.append(reader.entry())
        except (ValueError, IndexError, zlib.error) as error:
            raise DeltaError(f"line {reader.at + 1} is not as deltas are") from error
    return tuple(entries)


def _lines(entry: Entry) -> Iterator[str]:
    old, new = written(f"a/{entry.path}"), written(f"b/{entry.path}")
    yield f"diff --git {old} {new}"
    if entry.kind is Kind.GONE:
        yield "deleted file mode 100644"
        return
    yield f"new file mode {entry.kind.value}"
    if entry.kind is Kind.FOLDER or not entry.data:
        return
    blob = hashlib.sha1(b"blob %d\0" % len(entry.data) + entry.data, usedforsecurity=False)
    yield f"index {'0' * 40}..{blob.hexdigest()}"
    text = _text(entry.data)
    if text is None:
        yield "GIT binary patch"
        yield f"literal {len(entry.data)}"
        packed = zlib.compress(entry.data)
        for start in range(0, len(packed), _CHUNK):
            piece = packed[start : start + _CHUNK]
            coded = base64.b85encode(piece, pad=True).decode()
            yield _LETTERS[len(piece) - 1] + coded
        yield from ("", "literal 0", "HcmV?d00001", "")
        return
    lines = text.split("\n")
    ends = lines[-1] == ""
    lines = lines[:-1] if ends else lines
    yield "--- /dev/null"
    yield f"+++ {new}"
    yield f"@@ -0,0 +1,{len(lines)} @@"
    yield from (f"+{line}" for line in lines)
    if not ends:
        yield _NO_NEWLINE


def _text(data: bytes) -> str | None:
    """Decode a file that people can read as text."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@dataclass(slots=True)
class _Reader:
    lines: list[str]
    at: int = 0

    def _next(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]

    def _take(self, start: str) -> str | None:
        """Take the next line if it has this prefix, and return the rest of it."""
        if self.at < len(self.lines) and self.lines[self.at].startswith(start):
            return self._next().removeprefix(start)
        return None

    def entry(self) -> Entry:
        head = _HEAD.fullmatch(self._next())
        if head is None:
            raise DeltaError("no file")
        path = _of_head(head.string)
        if self._take("deleted file mode ") is not None:
            return Entry(path, Kind.GONE)
        kind = Kind(self._take("new file mode ") or "")
        if self._take("index ") is None:
            return Entry(path, kind)
        if self._take("GIT binary patch") is not None:
            return Entry(path, kind, self._binary())
        if self._take("--- ") is None or self._take("+++ ") is None:
            raise DeltaError("no content")
        count = int((self._take("@@ -0,0 +1,") or "").removesuffix(" @@"))
        lines = []
        for _ in range(count):
            line = self._next()
            if not line.startswith("+"):
                raise DeltaError("not a new line")
            lines.append(line[1:])
        end = "" if self._take(_NO_NEWLINE) is not None else "\n"
        return Entry(path, kind, ("\n".join(lines) + end).encode())

    def _binary(self) -> bytes:
        size = int(self._take("literal ") or "")
        packed = bytearray()
        while line := self._next():
            packed += base64.b85decode(line[1:])[: _LETTERS.index(line[0]) + 1]
        data = zlib.decompressobj().decompress(bytes(packed), min(size, _MAX_FILE_BYTES) + 1)
        end = [self._next() for _ in range(3)]
        if len(data) != size or end != ["literal 0", "HcmV?d00001", ""]:
            raise DeltaError("not as long as it says")
        return data


def _of_head(line: str) -> str:
    """Return the path of `diff --git a/P b/P`, where both sides are the same."""
    names = line.removeprefix("diff --git ")
    old, new = names[: len(names) // 2], names[len(names) // 2 + 1 :]
    if old.startswith('"'):
        old, new = (unquoted(e.encode()).decode(errors="surrogateescape") for e in (old, new))
    if old[:2] != "a/" or new[:2] != "b/" or old[2:] != new[2:]:
        raise DeltaError("two paths")
    return old[2:]
