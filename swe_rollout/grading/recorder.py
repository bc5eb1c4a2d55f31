"""Stands in a blind test file in place of expected values; any Python since 3.6 can run it.

A value that is compared with a hole is recorded, and equal. Whether it is right is decided outside.
"""

import operator
import os

RECORDS = ""
_LONGEST = 65536
# Tests replace what these modules offer.
_open, _write, _close, _index = os.open, os.write, os.close, operator.index
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def _record(number: int, text: str) -> None:
    if len(text) > _LONGEST:
        text = "?"
    place = _open(RECORDS, _FLAGS, 0o666)
    try:
        _write(place, f"{number} {text}\n".encode("ascii"))
    finally:
        _close(place)


def _plain(value: object) -> str:
    if isinstance(value, str):
        return ascii(str.__str__(value))
    for kind in (bytes, float, int):
        if isinstance(value, kind):
            return kind.__repr__(value)
    try:
        return int.__repr__(_index(value))  # type: ignore[arg-type]
    except TypeError:
        return "?"


class hole:  # noqa: N801 (a value, to whoever reads the test)
    """Equals everything."""

    __slots__ = ("number",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None

    def __init__(self, number: int) -> None:
        """Make the hole with this number."""
        self.number = number

    def __eq__(self, other: object) -> bool:
        """Record the other value."""
        _record(self.number, _plain(other))
        return True

    def __ne__(self, other: object) -> bool:
        """Record that this was no equality."""
        _record(self.number, "?")
        return False
