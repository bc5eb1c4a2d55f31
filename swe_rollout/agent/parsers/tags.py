"""Find where a value ends, in grammars that write values as plain text between tags.

A value may contain anything, including tags of the grammar, so the first closing tag need not be
its own. These rules decide, in this order:

- the closing tag that balances the value's opening tags ends it, if the grammar can continue after
  that tag: a value may quote whole parameters;
- otherwise the first closing tag after which the grammar can continue ends it;
- a value that is still ambiguous is refused: one that opens another parameter of the tool, or
  another call with one, and does not close it, or one with a second closing tag right before its
  own.

A value that quotes the end of a call is cut short there. Its real end then closes nothing, for
which `exact_calls` refuses the call.

All tags of a turn are found once; each query then costs O(log n) on any input.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from swe_rollout.agent.parsers.base import MalformedError
from swe_rollout.agent.parsers.strict_json import skip_space
from swe_rollout.agent.tools.base import ToolSpec

WS = r"[ \t\r\n]*+"
"""White space, which may be between tags."""
_MAX_OPEN = 64
"""A value that leaves this many parameters open is ambiguous, whatever their names."""


@dataclass(frozen=True, slots=True)
class ValueTags:
    """The tags around a value, as patterns."""

    opener: str
    """Pattern of the opening tag; its group `name`, if any, is the parameter's name. A group `bare`
    is only part of an opening tag: it may balance a closing tag that can't end a value."""
    closer: str
    following: str
    """What the grammar continues with after a closing tag."""
    call_end: str
    """What ends a call after the closing tag of its last value."""

    def find(self, text: str) -> Values:
        """Find all tags of a turn."""
        behind = f"(?:(?={WS}(?:{self.following}))(?P<goes_on>)|)"
        ends = f"(?:(?={WS}{self.call_end})(?P<ends>)|)"
        pattern = f"{self.opener}|(?P<closer>{self.closer}){behind}{ends}"
        return Values.of(text, list(re.finditer(pattern, text, re.MULTILINE)))


@dataclass(frozen=True, slots=True)
class Values:
    """The tags of values in one turn, by their offsets."""

    openers: Sequence[int]
    going_on: Sequence[int]
    """The closing tags after which the grammar can continue."""
    before: Mapping[int, int]
    """Maps a closing tag to the previous closing tag if only white space is between them."""
    last_call_end: int
    """The last closing tag that ends a call; -1 if there is none."""
    closer_of: Mapping[int, int]
    """Maps an opening tag to the closing tag that balances it."""
    opener_of: Mapping[int, int]
    around: Mapping[int, int]
    """Maps an opening tag to the enclosing one."""
    names: Mapping[int, str]
    """The name in each opening tag that has one, by the tag's offset."""

    @classmethod
    def of(cls, text: str, tags: Sequence[re.Match[str]]) -> Values:
        """Index the tags of a turn, in order."""
        closers = [tag for tag in tags if tag["closer"]]
        closer_of, around = _balanced(tags)
        return cls(
            [tag.start() for tag in tags if not tag["closer"] and not _is_bare(tag)],
            [tag.start() for tag in closers if tag["goes_on"] is not None],
            dict(_neighbours(text, tags)),
            max((tag.start() for tag in closers if tag["ends"] is not None), default=-1),
            closer_of,
            {closer: opener for opener, closer in closer_of.items()},
            around,
            {tag.start(): tag["name"] for tag in tags if tag["name"] is not None},
        )

    def end(self, opener: int, start: int, limit: int) -> int | None:
        """Return the closing tag of the value from `start` on; None if `limit` comes first."""
        own = self.closer_of.get(opener, limit)
        if own < limit and _any(self.going_on, own, own + 1):
            return own
        at = bisect_left(self.going_on, start)
        return self.going_on[at] if _any(self.going_on, start, limit) else None

    def check(self, name: str, start: int, end: int, names: Collection[str] | None) -> None:
        """Raise MalformedError for a value whose end is ambiguous.

        `names` are the parameters that it may not open without closing them; None means all.
        """
        if self._leaves_open(start, end, names):
            raise MalformedError(f"the value of {name[:80]} is not closed")
        before = self.before.get(end, -1)
        if before >= start and self.opener_of.get(before, -1) < start:
            raise MalformedError(f"the value of {name[:80]} is closed twice")

    def _leaves_open(self, start: int, end: int, names: Collection[str] | None) -> bool:
        opener = self.opener_of.get(end, -1)
        for _ in range(_MAX_OPEN):
            if opener < start:
                return False
            if names is None or self.names.get(opener) in names:
                return True
            opener = self.around.get(opener, -1)
        return True

    def widest(self, start: int) -> tuple[int, int] | None:
        """Return the first opening tag from `start` on and the last end of a call after it.

        Return None if either is missing.
        """
        at = bisect_left(self.openers, start)
        if at == len(self.openers) or self.last_call_end < self.openers[at]:
            return None
        return self.openers[at], self.last_call_end

    def has_unclosed(self, start: int, end: int) -> bool:
        """Return whether a value is opened but not closed between two offsets."""
        first, last = bisect_left(self.openers, start), bisect_left(self.openers, end)
        return any(self.closer_of.get(at, end) >= end for at in self.openers[first:last])


def parameters_of(tool: ToolSpec | None) -> Collection[str] | None:
    """Return the parameters of a tool; None, for no tool, means any: such a call never runs."""
    if tool is None:
        return ()
    return None if tool.arguments.takes_any else tool.arguments.properties


def _neighbours(text: str, tags: Iterable[re.Match[str]]) -> Iterator[tuple[int, int]]:
    for before, tag in pairwise(tags):
        is_empty = skip_space(text, before.end()) == tag.start()
        if before["closer"] and tag["closer"] and is_empty:
            yield tag.start(), before.start()


def _balanced(tags: Iterable[re.Match[str]]) -> tuple[dict[int, int], dict[int, int]]:
    closer_of, around, open_now = dict[int, int](), dict[int, int](), list[re.Match[str]]()
    for tag in tags:
        if not tag["closer"]:
            if open_now:
                around[tag.start()] = open_now[-1].start()
            open_now.append(tag)
            continue
        while tag["goes_on"] is not None and open_now and _is_bare(open_now[-1]):
            open_now.pop()
        if open_now:
            closer_of[open_now.pop().start()] = tag.start()
    return closer_of, around


def _is_bare(tag: re.Match[str]) -> bool:
    return bool(tag.groupdict().get("bare"))


def _any(starts: Sequence[int], start: int, end: int) -> bool:
    return bisect_left(starts, start) < bisect_left(starts, end)


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of a pattern's matches in one turn."""

    starts: Sequence[int]

    @classmethod
    def of(cls, pattern: str, text: str) -> Offsets:
        """Find all matches."""
        return cls([found.start() for found in re.finditer(pattern, text)])

    def next(self, start: int) -> int | None:
        """Return the first match at or after an offset."""
        at = bisect_left(self.starts, start)
        return self.starts[at] if at < len(self.starts) else None

    def any(self, start: int, end: int) -> bool:
        """Return whether there is a match between two offsets."""
        return _any(self.starts, start, end)
