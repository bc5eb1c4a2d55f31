"""Read lists and objects that rows hold as text: JSON, and lists as Python writes them.

Rows are untrusted; nothing in them is evaluated. Used by `row_fields` and the row formats.
"""

from __future__ import annotations

import ast
import json
import re
import warnings

MAX_TESTS = 100_000
_ITEM = re.compile(
    r"""\s*+('(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")\s*+(?:,|(?=[\])]\Z))""", re.DOTALL
)
"""One text of a Python list, and the comma after it."""


def json_value(value: object) -> object:
    """Return what a column holds as JSON text, as some files have objects; else the value."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def list_value(text: str) -> object:
    """The value of JSON or, as some datasets have it, a Python list of texts; never evaluated."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _python_list(text.strip())
    except (ValueError, SyntaxError, MemoryError):
        return None


def _python_list(text: str) -> list[str] | None:
    """The texts of a list or tuple as Python writes it, the first too many included; else none."""
    if text[:1] + text[-1:] not in ("[]", "()"):
        return None
    found: list[str] = []
    position = 1
    while len(found) <= MAX_TESTS and (item := _ITEM.match(text, position)):
        found.append(_python_text(item[1]))
        position = item.end()
    is_whole = position >= len(text) - 1 or not text[position:-1].strip()
    return found if is_whole or len(found) > MAX_TESTS else None


def _python_text(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    with warnings.catch_warnings():
        # An odd escape in untrusted text is not ours to warn about.
        warnings.simplefilter("ignore")
        return str(ast.literal_eval(quoted))
