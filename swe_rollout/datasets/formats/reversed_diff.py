"""Turn a diff around, as `git apply --reverse` reads it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_INDEX = re.compile(r"index ([0-9a-f]+)\.\.([0-9a-f]+)(.*)", re.DOTALL)
_PAIRS = (
    ("new file mode ", "deleted file mode "),
    ("old mode ", "new mode "),
    ("rename from ", "rename to "),
)
_NOT_TEXT = re.compile(r"^(?:GIT binary patch$|Binary files .* differ$|copy from )", re.MULTILINE)
_HEADERS = {first: second for pair in _PAIRS for first, second in (pair, pair[::-1])}
_SIGNS = {"+": "-", "-": "+"}


def reversed_diff(diff: str) -> str | None:
    """Return the diff that undoes this one; none for one with binary files or copies."""
    if _NOT_TEXT.search(diff):
        return None
    # Lines end at newlines alone, not at every character that Python takes for one.
    return "".join(_reversed(io.StringIO(diff, newline="\n")))


def _reversed(lines: Iterable[str]) -> Iterator[str]:
    old = new = 0
    waiting: list[str] = []
    for line in lines:
        if old > 0 or new > 0 or line.startswith("\\"):
            sign = line[:1]
            old -= sign in ("-", " ", "\n", "\r")
            new -= sign in ("+", " ", "\n", "\r")
            yield _SIGNS.get(sign, sign) + line[1:]
            continue
        if hunk := _HUNK.match(line):
            old, new = (int(hunk[n]) if hunk[n] else 1 for n in (2, 4))
            first, second = _range(hunk[3], hunk[4]), _range(hunk[1], hunk[2])
            yield f"@@ -{first} +{second} @@{line[hunk.end() :]}"
        elif line.startswith(("--- ", *(one for one, _ in _PAIRS[1:]))):
            waiting.append(line)
        elif line.startswith("+++ "):
            yield from _paths(waiting, line)
            waiting.clear()
        elif waiting and (partner := _partner(waiting[-1])) and line.startswith(partner):
            # The second line of a pair takes the first one's place.
            before = waiting.pop()
            yield _swapped(line)
            yield _swapped(before)
        else:
            yield from waiting
            waiting.clear()
            yield _header(line)


def _header(line: str) -> str:
    if index := _INDEX.match(line):
        return f"index {index[2]}..{index[1]}{index[3]}"
    if line.startswith("diff --git "):
        return line
    return _swapped(line)


def _swapped(line: str) -> str:
    for name, other in _HEADERS.items():
        if line.startswith(name):
            return other + line.removeprefix(name)
    return line


def _partner(line: str) -> str:
    return next((other for name, other in _PAIRS[1:] if line.startswith(name)), "")


def _paths(waiting: list[str], new: str) -> Iterator[str]:
    """Exchange `--- a/x` and `+++ b/x`, and keep git's prefixes where they are."""
    old = waiting.pop() if waiting and waiting[-1].startswith("--- ") else "--- /dev/null\n"
    yield from waiting
    yield "--- " + _prefixed(new[4:], "b/", "a/")
    yield "+++ " + _prefixed(old[4:], "a/", "b/")


def _prefixed(path: str, prefix: str, other: str) -> str:
    return other + path.removeprefix(prefix) if path.startswith(prefix) else path


def _range(start: str, count: str | None) -> str:
    return start if count is None else f"{start},{count}"
