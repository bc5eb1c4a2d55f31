"""Strict JSON for calls: refuses what Python's decoder tolerates. Used by all parsers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

SPACE = " \t\r\n"
"""JSON's white space, which may also be between the tags of a grammar."""
_MAX_DEPTH = 100
"""Maximum nesting; code that stores and renders calls recurses on Python's stack."""
_TOO_DEEP = "its JSON is invalid: it is nested too deeply"
_SPACE = re.compile(rf"[{SPACE}]*+")
_WINDOW = 1024
_MARGIN = 16
"""An error this close to the end of a window may be due to the window, as in `tru|e`."""


class JsonEndsError(ValueError):
    """The text ends before its JSON value does."""


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON value in a text, and the offset after it and the white space that follows."""

    value: object
    end: int
    limit: int
    """The end of the text."""

    @property
    def whole(self) -> object:
        """The value. Raises ValueError if more text follows it."""
        if self.end != self.limit:
            raise ValueError("there is more text behind its JSON value")
        return self.value


def read_json(text: str, start: int = 0, limit: int | None = None) -> JsonText:
    """Decode the value at `start`, skipping white space; ValueError says what is wrong and where.

    Raises JsonEndsError if the text up to `limit` merely ends too soon. Duplicate keys, NaN and
    Infinity, also as 1e999, lone surrogates, and values nested more than a hundred levels deep are
    not accepted.
    """
    limit = len(text) if limit is None else limit
    begin = skip_space(text, start)
    try:
        value, size = _decoded(text, begin, limit)
        _refuse_surrogates(value, text[begin : begin + size])
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) or _is_open_string(error)
        raise (JsonEndsError if ends else ValueError)(
            f"its JSON is invalid: {error.msg} at character {begin + error.pos - start}"
        ) from error
    except UnicodeEncodeError as error:
        raise ValueError("its JSON is invalid: a string holds half of a surrogate pair") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if not is_shallow(value):
        raise ValueError(_TOO_DEEP)
    return JsonText(value, min(limit, skip_space(text, begin + size)), limit)


def _decoded(text: str, begin: int, limit: int) -> tuple[object, int]:
    """Decode in growing windows, so that the cost of a value or an error is linear in its length.

    Python's errors count the lines before them, and a turn may contain thousands of broken calls.
    """
    size = _WINDOW
    while (end := begin + size) < limit:
        window = text[begin:end]
        size *= 4
        try:
            value, used = _DECODER.raw_decode(window)
        except json.JSONDecodeError as error:
            if error.pos < len(window) - _MARGIN and not _is_open_string(error):
                raise
            continue
        # A number may continue after the window.
        if used < len(window):
            return value, used
    return _DECODER.raw_decode(text[begin:limit])


def _is_open_string(error: json.JSONDecodeError) -> bool:
    return error.msg.startswith("Unterminated string")


def _refuse_surrogates(value: object, written: str) -> None:
    # A lone surrogate escape decodes, but the result can't be stored or run.
    (json.dumps(value, ensure_ascii=False) if r"\u" in written else written).encode()


def skip_space(text: str, start: int) -> int:
    """Return the offset of the next character that is not JSON's white space."""
    found = _SPACE.match(text, start)
    return found.end() if found else start


def is_shallow(value: object, depth: int = _MAX_DEPTH) -> bool:
    """Return whether lists and objects are nested at most `depth` levels deep."""
    level = [value]
    for _ in range(depth):
        if not level:
            break
        level = [inner for each in level for inner in _inside(each)]
    return not level


def _inside(value: object) -> Iterable[object]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()


class _NotJsonError(ValueError):
    """The text is not JSON, although Python's decoder would accept it."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _NotJsonError("its JSON is invalid: a key appears twice in one object")
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _NotJsonError(f"its JSON is invalid: a number has over {_MAX_DIGITS} digits")
    return int(digits)


def _fraction(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise _NotJsonError("its JSON is invalid: a number is too large")
    return value


def _no_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"its JSON is invalid: {name} is no JSON")


_MAX_DIGITS = 1000
"""Python refuses to read 4,300 digits; records hold at most 19."""
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_integer,
    parse_float=_fraction,
    parse_constant=_no_constant,
)
