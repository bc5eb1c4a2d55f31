"""Arguments: the JSON schema of a tool's arguments, and what is wrong with those of a call.

Schemas of our own tools and schemas from outside are held to the same rules. A name that the schema
does not have is a problem, unless it says that it takes any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend, validator_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema import TypeChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_LARGEST = 2**63 - 1
_DEEPEST = 16
"""References that are followed, one from the other."""
_OPEN = (
    *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
    *("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"),
)
"""Keys of a schema that says more of its names than `properties` does."""
_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


_NAMES: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
}


def _is_integer(checker: TypeChecker, value: object) -> bool:
    # JSON schema takes 3.0 for an integer; what the policy wrote is a fraction all the same.
    del checker
    return isinstance(value, int) and not isinstance(value, bool)


@cache
def _dialect(base: type[Validator]) -> type[Validator]:
    """A version of JSON schema with our integers."""
    checker = base.TYPE_CHECKER.redefine("integer", _is_integer)
    made: type[Validator] = extend(base, type_checker=checker)  # type: ignore[no-untyped-call]
    return made


def json_types(value: object) -> frozenset[str]:
    """The names that JSON schema has for the type of a value that was JSON."""
    if value is None:
        return frozenset({"null"})
    return next(_NAMES[kind] for kind in type(value).mro() if kind in _NAMES)


@dataclass(frozen=True)
class Arguments:
    """The schema of what a tool takes."""

    schema: dict[str, object]
    validator: Validator

    @classmethod
    def of(cls, schema: object) -> Arguments:
        """The rules of a JSON schema; ValueError when it is none, or not one of an object."""
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            raise ValueError("parameters must be a JSON schema of the type object")
        base = validator_for(schema, default=Draft202012Validator)
        try:
            base.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"not a JSON schema: {error.message}") from error
        # Every reference leads to a place in the schema itself, so none is ever fetched. A schema
        # inside that has a name of its own would change what the references in it mean.
        for inner in _schemas(schema):
            if inner is not schema and isinstance(inner.get("$id"), str):
                raise ValueError(f"not a schema that can be used: {inner['$id']!r} is inside it")
        for reference in _references(schema):
            if _pointed(schema, reference) is None:
                raise ValueError(f"not a JSON schema: it has nothing at {reference!r}")
        return cls(schema, _dialect(base)(schema))

    def __eq__(self, other: object) -> bool:
        """By schema."""
        return isinstance(other, Arguments) and self.schema == other.schema

    def __hash__(self) -> int:
        """By the names of the arguments."""
        return hash(tuple(self.properties))

    @property
    def properties(self) -> dict[str, dict[str, object]]:
        """The schema of each argument by name."""
        found = self.schema.get("properties")
        if not isinstance(found, dict):
            return {}
        return {str(name): each for name, each in found.items() if isinstance(each, dict)}

    def kinds_of(self, name: str) -> frozenset[str]:
        """The JSON types that an argument may have; empty when its schema says none."""
        others = self.schema.get("additionalProperties")
        found = self.properties.get(name, others if isinstance(others, dict) else {})
        return frozenset(self._kinds(found, _DEEPEST))

    def _kinds(self, schema: dict[str, object], depth: int) -> Iterator[str]:
        match schema.get("type"):
            case str(kind):
                yield kind
                return
            case list(kinds):
                yield from map(str, kinds)
                return
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        for value in values if isinstance(values, list) else ():
            yield from json_types(value)
        reference = schema.get("$ref")
        inner = [_pointed(self.schema, reference)] if isinstance(reference, str) else []
        for key in ("anyOf", "oneOf", "allOf"):
            several = schema.get(key)
            inner += several if isinstance(several, list) else []
        for each in inner if depth else ():
            if isinstance(each, dict):
                yield from self._kinds(each, depth - 1)

    def problems(self, arguments: Mapping[str, object]) -> list[str]:
        """What is wrong, in words for the policy; empty when nothing is."""
        try:
            return [*self._unknown(arguments), *self._wrong(arguments)]
        except RecursionError:
            return ["the arguments are wrong: they are nested too deeply"]

    def _unknown(self, arguments: Mapping[str, object]) -> Iterator[str]:
        if any(self.schema.get(key) for key in _OPEN) or "properties" not in self.schema:
            return
        known = list(self.properties)
        listed = f"it takes {', '.join(known)}" if known else "it takes none"
        for name in arguments:
            if name not in known:
                yield f"there is no argument {name[:80]!r}, {listed}"

    def _wrong(self, arguments: Mapping[str, object]) -> Iterator[str]:
        required = self.schema.get("required")
        for name in required if isinstance(required, list) else []:
            if name not in arguments:
                yield f"the argument {name!r} is missing"
        yield from map(_words, self._errors(arguments))
        for name, value in arguments.items():
            if not _storable(value):
                yield f"{name!r} must be a number that 64 bits hold"

    def _errors(self, arguments: Mapping[str, object]) -> list[ValidationError]:
        """What the schema does not allow, but for what `_unknown` and `_wrong` have told."""
        order = list(self.properties)
        given: dict[str, Any] = dict(arguments)  # as jsonschema types its instances
        found = sorted(self.validator.iter_errors(given), key=lambda e: _position(e, order))
        told = {"required", "additionalProperties"}
        return [error for error in found if error.path or error.validator not in told]


def _schemas(value: object) -> Iterator[dict[str, object]]:
    """All objects in it, itself too."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as found:
                yield found
                waiting += found.values()
            case list() as several:
                waiting += several


def _references(schema: object) -> Iterator[str]:
    for found in _schemas(schema):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := found.get(key), str):
                yield reference


def _pointed(schema: object, reference: str) -> object:
    """What a reference into the schema itself leads to; none where it leads nowhere."""
    if not reference.startswith("#"):
        return None
    found = schema
    for part in reference[1:].split("/")[1:] if reference != "#" else []:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        match found:
            case dict() if key in found:
                found = found[key]
            case list() if key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            case _:
                return None
    return found if reference == "#" or reference.startswith("#/") else None


def _position(error: ValidationError, order: list[str]) -> int:
    name = str(error.path[0]) if error.path else ""
    return order.index(name) if name in order else len(order)


def _words(error: ValidationError) -> str:
    if not error.path:
        return f"the arguments are wrong: {error.message[:200]}"
    name = str(error.path[0])
    schema = error.parent if error.parent is not None else error
    whole = schema.schema if len(error.path) == 1 else None
    match error.validator, error.validator_value:
        case "enum", list(choices):
            return f"{name!r} must be one of {', '.join(map(str, choices))}"
        case "type", str(kind) if len(error.path) == 1:
            return f"{name!r} must be {_kind(kind, whole)}"
        case "type", list(kinds) if len(error.path) == 1:
            return f"{name!r} must be {' or '.join(_WORDS.get(str(k), str(k)) for k in kinds)}"
        case "type", str(kind) if len(error.path) == 2:  # noqa: PLR2004 - an element of an array
            return f"{name!r} must be an array of {_WORDS.get(kind, kind).split(' ', 1)[-1]}s"
        case _:
            return f"{name!r} is wrong: {error.message[:200]}"


def _kind(kind: str, schema: object) -> str:
    items = schema.get("items") if isinstance(schema, dict) else None
    inner = items.get("type") if isinstance(items, dict) else None
    if kind == "array" and isinstance(inner, str) and inner in _WORDS:
        return f"an array of {_WORDS[inner].split(' ', 1)[-1]}s"
    return _WORDS.get(kind, kind)


def _storable(value: object) -> bool:
    """Whether the stored record, whose numbers have 64 bits, can hold it."""
    match value:
        case bool() | str() | None:
            return True
        case int():
            return abs(value) <= _LARGEST
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_storable, value))
        case dict():
            return all(map(_storable, value.values()))
        case _:
            return False
