"""What a check of a test asks of the value that it is given, decided outside of the sandbox. Pure.

A blind run records each value as a Python literal, or as `?` if it is none: records are untrusted.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

_LONGEST: Final = 70_000
"""The most characters of a record; the recorder writes no longer ones."""
_INFINITE: Final = frozenset({"nan", "inf", "-inf"})

Value = str | bytes | int | float


class Unplain(Enum):
    """Stands for values that can't be recorded, such as objects."""

    UNPLAIN = "?"


class NotARecordError(ValueError):
    """Text that no recorder writes."""


def read_record(text: str) -> object:
    """Return the value in a record. Raises NotARecordError."""
    if text == Unplain.UNPLAIN.value:
        return Unplain.UNPLAIN
    if text in _INFINITE:
        return float(text)
    if len(text) > _LONGEST:
        raise NotARecordError
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise NotARecordError from error
    return value


@dataclass(frozen=True, slots=True)
class Equal:
    """Asks for this value, as the test has it."""

    value: Value

    def accepts(self, seen: object) -> bool:
        """Return whether a recorded value meets the check."""
        return seen == self.value

    def __str__(self) -> str:
        return repr(self.value)


class Loose(Equal):
    """Asks for this value, or one that JavaScript's `==` takes for it."""

    __slots__ = ()

    def accepts(self, seen: object) -> bool:
        """Return whether a recorded value meets the check."""
        if isinstance(seen, list):
            try:
                seen = _joined(seen)
            except ValueError:  # a number too long to be written
                return False
        if type(seen) is type(self.value) or not isinstance(seen, str | int | float):
            return seen == self.value
        return _as_number(seen) == _as_number(self.value)


def _joined(values: object) -> str:
    """Return what JavaScript's `String` makes of a list or what is in one."""
    match values:
        case None:
            return ""
        case bool():
            return str(values).lower()
        case list():
            return ",".join(map(_joined, values))
        case _:
            return str(values)


def _as_number(value: Value) -> float:
    try:
        if isinstance(value, str) and re.match(r"\s*0[xXoObB]", value):
            return float(int(value, 0))
        return float(value or 0)
    except (ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True, slots=True)
class Computed:
    """Asks for what the test computes, which a run of the gold patch has shown."""

    values: tuple[object, ...] = ()
    """What it was compared with there; none before that run."""

    def accepts(self, seen: object) -> bool:
        """Return whether a recorded value meets the check."""
        return seen in self.values

    def __str__(self) -> str:
        return " or ".join(map(repr, self.values))


class Filed(Computed):
    """Asks for the text of a hidden file, which a run of the gold patch has shown."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Contains:
    """Asks for something that contains this value."""

    part: Value

    def accepts(self, seen: object) -> bool:
        """Return whether a recorded value meets the check."""
        match seen, self.part:
            case str() as text, str() as part:
                return part in text
            case bytes() as data, bytes() as some:
                return some in data
            case list() | tuple() | set() | dict(), _:
                return self.part in seen
            case _:
                return False

    def __str__(self) -> str:
        return f"what contains {self.part!r}"


@dataclass(frozen=True, slots=True)
class Close:
    """Asks for numbers within a tolerance of these; an expected number stands for any shape."""

    values: object
    relative: float
    absolute: float

    def accepts(self, seen: object) -> bool:
        """Return whether a recorded value meets the check."""
        return self._close(seen, self.values)

    def _close(self, seen: object, wanted: object) -> bool:
        match wanted, seen:
            case int() | float(), int() | float():
                allowed = max(self.absolute, self.relative * abs(wanted))
                return bool(wanted - allowed <= seen <= wanted + allowed)
            case int() | float(), list() | tuple():
                # Nothing is close to anything.
                return bool(seen) and all(self._close(each, wanted) for each in seen)
            case list() | tuple(), list() | tuple():
                pairs = zip(seen, wanted, strict=False)
                return len(seen) == len(wanted) and all(self._close(*pair) for pair in pairs)
            case _:
                return bool(seen == wanted)

    def __str__(self) -> str:
        return f"about {self.values!r}"


class Truth(StrEnum):
    """Asks for a truth value or a singleton; of other values only the truth is recorded."""

    TRUE = "a true value"
    FALSE = "a false value"
    IS_TRUE = "True"
    IS_FALSE = "False"
    IS_NONE = "None"
    NOT_NONE = "another value than None"

    def accepts(self, seen: object) -> bool:
        """Return whether a recorded value meets the check."""
        match self:
            case Truth.TRUE:
                return bool(seen)
            case Truth.FALSE:
                return not seen
            case Truth.IS_TRUE:
                return seen is True
            case Truth.IS_FALSE:
                return seen is False
            case Truth.IS_NONE:
                return seen is None
            case Truth.NOT_NONE:
                return seen is not None

    @property
    def is_positive(self) -> bool:
        """Whether this is what most tests ask for."""
        return self in (Truth.TRUE, Truth.IS_TRUE, Truth.NOT_NONE)


Want = Equal | Computed | Contains | Close | Truth


def holds(want: Want, seen: Collection[object]) -> bool:
    """Return whether a check was made, and each time with a value that meets it."""
    match want:
        # It may differ from time to time: all that gold's run showed has to appear.
        case Computed(values) if not all(value in seen for value in values):
            return False
        case _:
            plain = bool(seen) and Unplain.UNPLAIN not in seen
            return plain and all(want.accepts(value) for value in seen)


def plain_leaves(value: object) -> Iterator[Value]:
    """Yield the texts and numbers in a plain value."""
    match value:
        case bool():
            pass
        case str() | bytes() | int():
            yield value
        case float() if math.isfinite(value):
            yield value
        case list() | tuple() | set():
            for each in value:
                yield from plain_leaves(each)
        case dict():
            for key, each in value.items():
                yield from plain_leaves(key)
                yield from plain_leaves(each)
        case _:
            pass
