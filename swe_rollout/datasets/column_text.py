"""Read lists and objects that rows contain as text: JSON, and lists as Python writes them.

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
"""Matches one string of a Python list, and the comma after it."""


def json_value(value: object) -> object:
    """Decode a column that some files hold as JSON text; return any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def list_value(text: str) -> object:
    """Read JSON or, as in some datasets, a Python list of strings; nothing is evaluated."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _python_list(text.strip())
    except (ValueError, SyntaxError, MemoryError):
        return None


def _python_list(text: str) -> list[str] | None:
    """Read a list or tuple of strings as Python writes it, up to one too many; else None."""
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
        # An invalid escape in untrusted text deserves no warning of ours.
        warnings.simplefilter("ignore")
        return str(ast.literal_eval(quoted))
