"""Arguments: the JSON schema of a tool's arguments, and the check of a call's arguments.

The check is strict: a name that the schema does not list is a problem, unless it allows any name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from jsonschema import Draft202012Validator, TypeChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

_MAX_INTEGER = 2**63 - 1
_MAX_PROBLEMS = 8
_MAX_ERRORS = 64
_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_PLAIN = {"type", "properties", "required", "items", "enum", "description"}
"""Keywords that are checked without the validator."""
_TYPE_NAMES: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
}


def _is_integer(checker: TypeChecker, value: object) -> bool:
    # JSON schema accepts 3.0 as an integer, but the policy wrote a fraction.
    del checker
    return isinstance(value, int) and not isinstance(value, bool)


_VALIDATOR: type[Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


def json_types(value: object) -> frozenset[str]:
    """Return JSON schema's names for the types of a decoded JSON value."""
    if value is None:
        return frozenset({"null"})
    return next(_TYPE_NAMES[each] for each in type(value).mro() if each in _TYPE_NAMES)


@dataclass(frozen=True)
class Arguments:
    """The schema of a tool's arguments."""

    schema: dict[str, object]
    validator: Validator
    is_checked: bool = True
    """Whether calls have to fit the schema."""

    @classmethod
    def of(cls, schema: dict[str, object]) -> Arguments:
        """Compile the JSON schema of an object. Raises ValueError for anything else."""
        if schema.get("type", "object") != "object":
            raise ValueError("parameters must be a JSON schema of the type object")
        # A reference could point anywhere, even to another host.
        if '"$ref":' in json.dumps(schema):
            raise ValueError("a schema with references can't be used")
        try:
            _VALIDATOR.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"not a JSON schema: {error.message}") from error
        return cls(schema, _VALIDATOR(schema))

    @classmethod
    def unchecked(cls, schema: dict[str, object]) -> Arguments:
        """Take a schema that is shown to the policy and that somebody else checks."""
        return cls(schema, _VALIDATOR({}), is_checked=False)

    def __eq__(self, other: object) -> bool:
        """Compare schemas."""
        return isinstance(other, Arguments) and self.schema == other.schema

    def __hash__(self) -> int:
        """Hash the names of the arguments."""
        return hash(tuple(self.properties))

    @property
    def properties(self) -> dict[str, dict[str, object]]:
        """The schema of each argument by name."""
        found = self.schema.get("properties")
        if not isinstance(found, dict):
            return {}
        return {str(name): each for name, each in found.items() if isinstance(each, dict)}

    @property
    def takes_any(self) -> bool:
        """Whether a call may have arguments that the schema does not name."""
        return bool(self.schema.get("additionalProperties")) or "properties" not in self.schema

    def types_of(self, name: str) -> frozenset[str]:
        """Return the JSON types that an argument may have; empty if its schema names none."""
        return types_in(self.properties.get(name, {}))

    def problems(self, arguments: Mapping[str, object]) -> list[str]:
        """Return the first problems, worded for the policy; empty if there are none."""
        if not self.is_checked or _surely_fits(arguments, self.schema):
            return []
        found = chain(self._unknown(arguments), self._wrong(arguments))
        shown = list(islice(found, _MAX_PROBLEMS))
        return [*shown, "there is more"] if next(found, None) is not None else shown

    def _unknown(self, arguments: Mapping[str, object]) -> Iterator[str]:
        if self.takes_any:
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
        yield from map(_worded, self._errors(arguments))
        for name, value in arguments.items():
            if not _storable(value):
                yield f"{name!r} must be a number that 64 bits hold"

    def _errors(self, arguments: Mapping[str, object]) -> list[ValidationError]:
        """Return violations of the schema that `_unknown` and `_wrong` do not report themselves."""
        order = list(self.properties)
        given: dict[str, Any] = dict(arguments)  # the type that jsonschema declares for instances
        # An array may have thousands of wrong elements.
        some = islice(self.validator.iter_errors(given), _MAX_ERRORS)
        found = sorted(some, key=lambda e: _position(e, order))
        reported = {"required", "additionalProperties"}
        return [error for error in found if error.path or error.validator not in reported]


def _surely_fits(value: object, schema: object) -> bool:
    """Return whether a value fits a schema of plain keywords; if False, the validator decides.

    It takes a hundred times as long, and almost all calls are right.
    """
    if not isinstance(schema, dict) or not schema.keys() <= _PLAIN:
        return False
    named = schema.get("type")
    if not isinstance(named, str) or named not in _TYPE_NAMES.get(type(value), ()):
        return False
    if "enum" in schema:
        return isinstance(value, str) and value in schema["enum"]
    match value:
        case dict():
            known = schema.get("properties", {})
            has_all = value.keys() >= set(schema.get("required", ()))
            is_known = has_all and value.keys() <= known.keys()
            return is_known and all(_surely_fits(each, known[name]) for name, each in value.items())
        case list() if "items" in schema:
            return all(_surely_fits(each, schema["items"]) for each in value)
        case _:
            return _storable(value)


def types_in(schema: Mapping[str, object]) -> frozenset[str]:
    """Return the JSON types that a schema allows; empty if it names none."""
    return frozenset(_types(schema))


def _types(schema: Mapping[str, object]) -> Iterator[str]:
    match schema:
        case {"type": str(name)}:
            yield name
        case {"type": list(names)}:
            yield from map(str, names)
        case {"enum": list(values)}:
            for value in values:
                yield from json_types(value)
        case {"anyOf": list(schemas)} | {"oneOf": list(schemas)}:
            for inner in schemas:
                yield from _types(inner) if isinstance(inner, dict) else ()


def _position(error: ValidationError, order: list[str]) -> int:
    name = str(error.path[0]) if error.path else ""
    return order.index(name) if name in order else len(order)


def _worded(error: ValidationError) -> str:
    if not error.path:
        return f"the arguments are wrong: {error.message[:200]}"
    name = str(error.path[0])
    schema = error.parent if error.parent is not None else error
    whole = schema.schema if len(error.path) == 1 else None
    match error.validator, error.validator_value:
        case "enum", list(choices):
            return f"{name!r} must be one of {', '.join(map(str, choices))}"
        case "type", str(type_name) if len(error.path) == 1:
            return f"{name!r} must be {_noun(type_name, whole)}"
        case "type", list(names) if len(error.path) == 1:
            return f"{name!r} must be {' or '.join(_NOUNS.get(str(n), str(n)) for n in names)}"
        case "type", str(type_name) if len(error.path) == 2:  # noqa: PLR2004 - an array's element
            return f"{name!r} must be an array of {_plural(type_name)}"
        case _:
            return f"{name!r} is wrong: {error.message[:200]}"


def _noun(type_name: str, schema: object) -> str:
    match schema:
        case {"items": {"type": str(inner)}} if type_name == "array" and inner in _NOUNS:
            return f"an array of {_plural(inner)}"
        case _:
            return _NOUNS.get(type_name, type_name)


def _plural(type_name: str) -> str:
    return f"{_NOUNS.get(type_name, type_name).split(' ', 1)[-1]}s"


def _storable(value: object) -> bool:
    """Return whether the stored record, whose numbers have 64 bits, can hold the value."""
    match value:
        case bool() | str() | None:
            return True
        case int():
            return abs(value) <= _MAX_INTEGER
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_storable, value))
        case dict():
            return all(map(_storable, value.values()))
        case _:
            return False
