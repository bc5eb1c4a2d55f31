"""Stands in a blind test file in place of expected values; any Python since 3.6 can run it.

A value that is compared with a hole is recorded, and equal. Whether it is right is decided outside.
"""

import operator
import os

RECORDS = ""
_LONGEST = 65536
_DEEPEST = 8
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


class _UnplainError(Exception):
    """A value that is no plain data."""


def _plain(value: object) -> str:
    try:
        return _literal(value, 0)
    except (_UnplainError, RecursionError):
        return "?"


def _literal(value: object, depth: int) -> str:
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        if depth == _DEEPEST or len(value) > _LONGEST:
            raise _UnplainError
        return _container(value, depth + 1)
    text = _scalar(value)
    if depth and text.strip("-") in ("nan", "inf"):
        raise _UnplainError
    return text


def _scalar(value: object) -> str:
    if value is None or value is True or value is False:
        return str(value)
    if isinstance(value, str):
        return ascii(str.__str__(value))
    for kind in (bytes, float, int):
        if isinstance(value, kind):
            return kind.__repr__(value)
    try:
        return int.__repr__(_index(value))  # type: ignore[arg-type]
    except TypeError:
        raise _UnplainError from None


def _container(value: object, depth: int) -> str:
    if isinstance(value, dict):
        items = [(_literal(k, depth), _literal(v, depth)) for k, v in dict.items(value)]
        return "{" + ", ".join(": ".join(item) for item in items) + "}"
    parts = [_literal(each, depth) for each in value]  # type: ignore[attr-defined]
    text = ", ".join(parts)
    if isinstance(value, list):
        return f"[{text}]"
    if isinstance(value, tuple):
        return f"({text},)" if parts else "()"
    return f"{{{text}}}" if parts else "set()"


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

    @staticmethod
    def seen(number: int, value: object) -> bool:
        """Record a value; an array is recorded as the list of its elements."""
        if hasattr(value, "tolist"):
            value = value.tolist()
        _record(number, _plain(value))
        return True

    @staticmethod
    def truth(number: int, value: object) -> bool:
        """Record whether a value is true, or which singleton it is."""
        single = value is None or value is True or value is False
        _record(number, str(value if single else int(bool(value))))
        return True

    class raising:  # noqa: N801 (a function, to whoever reads the test)
        """Wraps a context manager that lets an error in, and records the error's message."""

        def __init__(self, number: int, raises: type, *errors: object) -> None:
            """Make the context manager `raises(*errors)`."""
            self.number, self.inner = number, raises(*errors)

        def __enter__(self) -> object:
            """Enter it."""
            return self.inner.__enter__()

        def __exit__(self, kind: object, error: object, trace: object) -> object:
            """Leave it; if it takes the error, record the message."""
            taken = self.inner.__exit__(kind, error, trace)
            if taken and error is not None:
                # pytest searches the notes of an error, too.
                texts = [str(error), *getattr(error, "__notes__", ())]
                _record(self.number, _plain("\n".join(texts)))
            return taken
