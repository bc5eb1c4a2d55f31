r"""Translate character classes of a pattern, such as `[^\w.-]`, to POSIX bracket expressions.

A class becomes the set of its ASCII characters, because bracket expressions support neither escapes
nor classes inside a complement; of other characters, it contains the listed ones or all of them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.tools.base import ToolError

_ALL: Final = frozenset(chr(code) for code in range(128))
_NO_TEXT: Final = frozenset("\0\n")
"""Characters that no line contains."""
_ALL_OTHERS: Final = "\udc80-\udcff"
"""The bytes outside ASCII, as `surrogateescape` writes them."""
LINE_END: Final = "[^\x01-\t\v-\udcff]"
"""A class that matches only a line end: `grep` reads a literal one as an alternation."""
_ESCAPED: Final[Mapping[str, frozenset[str]]] = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset(string.whitespace),
}
_NAMED: Final[Mapping[str, frozenset[str]]] = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "blank": frozenset(" \t"),
    "cntrl": frozenset(chr(code) for code in (*range(32), 127)),
    "digit": frozenset(string.digits),
    "graph": frozenset(chr(code) for code in range(33, 127)),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(chr(code) for code in range(32, 127)),
    "punct": frozenset(string.punctuation),
    "space": frozenset(string.whitespace),
    "upper": frozenset(string.ascii_uppercase),
    "word": frozenset(string.ascii_letters + string.digits + "_"),
    "xdigit": frozenset(string.hexdigits),
}
_CHARACTERS: Final = dict(zip("tnrfva", "\t\n\r\f\v\a", strict=True))
_NAMED_CLASS: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_HEX: Final = re.compile(r"\\x([0-9A-Fa-f]{2})")
_OPERATORS: Final = ("&&", "--", "~~")
_SPECIAL: Final = frozenset("]^[-")


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """A set of characters: ASCII characters, and either listed others or all others."""

    ascii: frozenset[str]
    others: frozenset[str] = frozenset()
    all_others: bool = False

    def negated(self) -> CharacterClass:
        """Return the complement of the class."""
        if self.others and not self.all_others:
            raise _refusal("a negated class with characters outside ASCII is not supported")
        return CharacterClass(_ALL - self.ascii, all_others=not self.all_others)

    def union(self, other: CharacterClass) -> CharacterClass:
        """Return the union of both classes."""
        return CharacterClass(
            self.ascii | other.ascii,
            self.others | other.others,
            all_others=self.all_others or other.all_others,
        )

    def ere(self, *, multiline: bool = False) -> str:
        """Write the class as a POSIX extended regular expression.

        With `multiline`, the matched text contains line ends, which `LINE_END` matches.
        """
        left_out = _ALL - self.ascii - {"\0"}
        if self.all_others and not (multiline and "\n" in left_out):
            left_out -= _NO_TEXT
            return f"[^{_listed(left_out)}]" if left_out else "."
        members = self.ascii - _NO_TEXT
        choices = [] if not members else ["\\^" if members == {"^"} else f"[{_listed(members)}]"]
        choices += [f"[{_ALL_OTHERS}]"] * self.all_others
        choices += [LINE_END] * (multiline and "\n" in self.ascii)
        choices += sorted(self.others)
        if not choices:
            raise _refusal("it holds a class of which no line has a character")
        return choices[0] if len(choices) == 1 and not self.others else f"({'|'.join(choices)})"


def class_of_escape(letter: str) -> CharacterClass:
    r"""Return the class of `\d`, `\w` or `\s`, or its complement for a capital letter."""
    found = CharacterClass(_ESCAPED[letter.lower()])
    return found.negated() if letter.isupper() else found


def _refusal(why: str) -> ToolError:
    return ToolError(f"the pattern can't be used: {why}")


def _listed(members: frozenset[str]) -> str:
    """Write members one by one, special ones where they have no special meaning."""
    plain = "".join(sorted(members - _SPECIAL))
    if not plain and members == {"^", "-"}:
        return "-^"
    tail = "".join(each for each in "[^-" if each in members)
    return ("]" if "]" in members else "") + plain + tail


def read_class(pattern: str, at: int) -> tuple[CharacterClass, int]:
    """Read the class whose `[` is before `at`; return it and its end.

    Raises ToolError if it is not closed, or if no line can be searched for it.
    """
    is_negated = pattern.startswith("^", at)
    at += is_negated
    found, at = _item(pattern, at)
    while not pattern.startswith("]", at):
        item, at = _item(pattern, at)
        found = found.union(item)
    return (found.negated() if is_negated else found), at + 1


def _item(pattern: str, at: int) -> tuple[CharacterClass, int]:
    if named := _NAMED_CLASS.match(pattern, at):
        if named[2] not in _NAMED:
            raise _refusal(f"there is no class {named[0]}")
        members = CharacterClass(_NAMED[named[2]])
        return (members.negated() if named[1] else members), named.end()
    if pattern.startswith(_OPERATORS, at):
        raise _refusal("set operations in a class are not supported")
    low, at = _character(pattern, at)
    if isinstance(low, CharacterClass):
        return low, at
    if pattern.startswith("-", at) and not pattern.startswith("-]", at):
        high, at = _character(pattern, at + 1)
        if isinstance(high, CharacterClass) or not (low + high).isascii() or low > high:
            raise _refusal("a range in a class must have two ends of ASCII, in order")
        return CharacterClass(frozenset(map(chr, range(ord(low), ord(high) + 1)))), at
    alone = frozenset(low)
    return CharacterClass(alone) if low.isascii() else CharacterClass(frozenset(), alone), at


def _character(pattern: str, at: int) -> tuple[str | CharacterClass, int]:
    """Read one character, or the class that an escape stands for."""
    if hexadecimal := _HEX.match(pattern, at):
        return chr(int(hexadecimal[1], 16)), hexadecimal.end()
    found = pattern[at : at + 1]
    letter = pattern[at + 1 : at + 2]
    if not found or (found == "\\" and not letter):
        raise _refusal("a class [ is not closed")
    if found == "[":
        raise _refusal(r"a [ inside a class; write \[ for the character")
    if found != "\\":
        return found, at + 1
    if letter.lower() in _ESCAPED:
        return class_of_escape(letter), at + 2
    if letter.isalnum() and letter not in _CHARACTERS:
        raise _refusal(f"\\{letter} is not supported in a class")
    return _CHARACTERS.get(letter, letter), at + 2
