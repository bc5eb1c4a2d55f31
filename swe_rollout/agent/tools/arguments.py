"""Arguments: the JSON schema of a tool's arguments, and what is wrong with those of a call.

Schemas of our own tools and schemas from outside are held to the same rules. A name that the schema
does not have is a problem, unless it says that it takes any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema import TypeChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_LARGEST = 2**63 - 1
_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def _is_integer(checker: TypeChecker, value: object) -> bool:
    # JSON schema takes 3.0 for an integer; what the policy wrote is a fraction all the same.
    del checker
    return isinstance(value, int) and not isinstance(value, bool)


_Validator = extend(  # type: ignore[no-untyped-call] # its stubs leave it untyped
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


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
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"not a JSON schema: {error.message}") from error
        return cls(schema, _Validator(schema))

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
        return frozenset(_types(self.properties.get(name, {})))

    def problems(self, arguments: Mapping[str, object]) -> list[str]:
        """What is wrong, in words for the policy; empty when nothing is."""
        return [*self._unknown(arguments), *self._wrong(arguments)]

    def _unknown(self, arguments: Mapping[str, object]) -> Iterator[str]:
        if self.schema.get("additionalProperties"):
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
        order = list(self.properties)
        given: dict[str, Any] = dict(arguments)  # as jsonschema types its instances
        found = self.validator.iter_errors(given)
        for error in sorted(found, key=lambda error: _position(error, order)):
            if error.path:
                yield _words(error)
        for name, value in arguments.items():
            if name in self.properties and not _storable(value):
                yield f"{name!r} must be a number that 64 bits hold"


def _types(schema: dict[str, object]) -> Iterator[str]:
    match schema.get("type"):
        case str(kind):
            yield kind
        case list(kinds):
            yield from map(str, kinds)
        case _:
            for key in ("anyOf", "oneOf"):
                inner = schema.get(key)
                for each in inner if isinstance(inner, list) else []:
                    yield from _types(each) if isinstance(each, dict) else ()
            values = schema.get("enum")
            if isinstance(values, list) and all(isinstance(value, str) for value in values):
                yield "string"


def _position(error: ValidationError, order: list[str]) -> int:
    name = str(error.path[0]) if error.path else ""
    return order.index(name) if name in order else len(order)


def _words(error: ValidationError) -> str:
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
