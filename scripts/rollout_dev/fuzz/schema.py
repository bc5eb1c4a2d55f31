"""Write documents that their reader accepts, by changes to an accepted one that keep it valid.

A JSON schema determines where changes are made and which values are allowed. The reader decides
about other rules, such as mutually exclusive fields: a change that it refuses is dropped.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final

_TEXTS: Final = (
    *("", "a", "demo-1", "A_b.c", "tools/x.py", "x.py", "cpu", "0" * 64, "1Gi", "250m", "500Mi"),
    *("/testbed", "../x", "file://runs", "s3://rollouts/a", "http://engine:30000", "https://h/v1"),
    # Other YAML versions read some of these as other types.
    *("yes", "off", "null", "~", "0x10", "0o17", "1_000", "1e3", ".inf", "12:30:45", "2026-01-01"),
    *("# x", ": ", "- ", "a: b", "{a: b}", "*a", "&a b", "!x", "%x", "@x", "`x`", "'", '"', "\\"),
    *(" a ", "a\nb", "a\n", "\ta", "é", "日本", "\u2028", "\x85", "\U0001f600", "{{ x }}", "$HOME"),
)
_LETTERS: Final = string.ascii_letters + string.digits + "-_./"
_TRIES: Final = 60
_MOST: Final = 4
"""Maximum items of a list, and keys of a mapping."""
_DEEPEST: Final = 6
_ABSENT: Final = 0.75
"""Share of optional fields left out of a new object."""
_DROPPED: Final = 0.1
_DEEPER: Final = 0.8
"""Probability that a change is made inside a value, not to the whole value."""


class SchemaWriter:
    """Makes values that follow a schema, and changes them."""

    def __init__(self, schema: Mapping[str, object], chance: random.Random) -> None:
        self._schema = schema
        self._definitions = _fields(schema.get("$defs"))
        self._chance = chance

    def grown(self, document: object, *, changes: int, accepts: Callable[[object], bool]) -> object:
        """Return the document after up to `changes` changes, none of which was refused."""
        for _ in range(changes):
            changed = self._changed(self._schema, deepcopy(document))
            if accepts(changed):
                document = changed
        return document

    def value(self, node: object, depth: int = 0) -> object:  # noqa: PLR0911 - one for each kind
        """Return a value that is valid as far as the schema says."""
        chance, found = self._chance, self._resolved(node)
        if "const" in found:
            return found["const"]
        if options := found.get("enum"):
            return chance.choice(_items(options))
        match found.get("type"):
            case "object":
                return self._object(found, depth)
            case "array":
                least, most = _number(found, "minItems", 0), _number(found, "maxItems", _MOST)
                count = chance.randint(int(least), max(int(least), min(int(most), _MOST)))
                return [self.value(found.get("items"), depth + 1) for _ in range(count)]
            case "string":
                return self._text(found)
            case "integer":
                return int(self._in_range(found))
            case "number":
                return self._in_range(found)
            case "boolean":
                return chance.random() < 0.5  # noqa: PLR2004 - a coin
            case "null":
                return None
            case _:  # anything
                return chance.choice([*_TEXTS, 0, 1.5, True, None, {"a": [1]}])

    def _resolved(self, node: object) -> dict[str, object]:
        """Return the schema of a value, with one alternative chosen."""
        found = _fields(node)
        while True:
            if isinstance(name := found.get("$ref"), str):
                found = _fields(self._definitions.get(name.rpartition("/")[2]))
            elif options := _items(found.get("anyOf")):
                found = _fields(self._chance.choice(options))
            else:
                return found

    def _object(self, node: dict[str, object], depth: int) -> dict[str, object]:
        chance, fields = self._chance, _fields(node.get("properties"))
        required = _items(node.get("required"))
        made = {
            name: self.value(field, depth + 1)
            for name, field in fields.items()
            if name in required or (depth < _DEEPEST and chance.random() > _ABSENT)
        }
        if (further := node.get("additionalProperties")) and depth < _DEEPEST:
            for _ in range(chance.randint(0, _MOST)):
                name = str(self.value(node.get("propertyNames") or {"type": "string"}))
                made[name] = self.value(further, depth + 1)
        return made

    def _text(self, node: dict[str, object]) -> str:
        chance, pattern = self._chance, str(node.get("pattern", ""))
        least, most = int(_number(node, "minLength", 0)), int(_number(node, "maxLength", 100))
        found = ""
        for _ in range(_TRIES):
            size = chance.choice((least, least + 1, min(most, 20), most))
            made = "".join(chance.choices(_LETTERS, k=size))
            found = chance.choice((chance.choice(_TEXTS), made))
            if least <= len(found) <= most and re.search(pattern, found):
                break
        return found

    def _in_range(self, node: dict[str, object]) -> float:
        chance, kind = self._chance, int if node.get("type") == "integer" else float
        above = _number(node, "exclusiveMinimum", -1e6) + (1 if kind is int else 1e-3)
        least, most = _number(node, "minimum", above), _number(node, "maximum", 1e6)
        least = max(least, above) if "exclusiveMinimum" in node else least
        between = chance.randint(int(least), max(int(least), int(most)))
        usual = min(max(chance.choice((0, 1, 2, 10)), least), most)
        return kind(chance.choice((least, most, between, usual)))

    def _changed(self, node: object, value: object, depth: int = 0) -> object:
        """Change something in a value, in place."""
        chance, found = self._chance, self._resolved(node)
        if not value or chance.random() > _DEEPER:
            return self.value(found, depth) if depth else self._in_object(found, value, depth)
        match value:
            case dict():
                return self._in_object(found, value, depth)
            case list():
                at = chance.randrange(len(value))
                value[at] = self._changed(found.get("items"), value[at], depth + 1)
                return value
            case _:
                return self.value(found, depth)

    def _in_object(self, node: dict[str, object], value: object, depth: int) -> object:
        fields = _fields(node.get("properties"))
        if not isinstance(value, dict) or not fields:
            return self.value(node, depth)
        name = self._chance.choice(list(fields))
        if name in value and self._chance.random() < _DROPPED:
            del value[name]
        elif name in value:
            value[name] = self._changed(fields[name], value[name], depth + 1)
        else:
            value[name] = self.value(fields[name], depth + 1)
        return value


def _fields(value: object) -> dict[str, object]:
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def _number(node: dict[str, object], name: str, default: float) -> float:
    value = node.get(name)
    return value if isinstance(value, int | float) else default
