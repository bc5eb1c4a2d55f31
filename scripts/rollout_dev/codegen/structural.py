"""Structural schemas: pydantic's JSON schema in the form that a CustomResourceDefinition takes.

No `$ref`, no `anyOf` with null, no `const`, no titles: what the API server refuses is written in
the way it understands. `crd` adds the rules that only hold on a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydantic import BaseModel

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_KEPT: Final = (
    "enum",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-preserve-unknown-fields",
)
_EXCLUSIVE: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_EMPTY: Final[tuple[Json, ...]] = (None, "", [], {})


@dataclass(slots=True)
class Schema:
    """One value of an object: its type, its documentation, its bounds, and what is inside it."""

    type: str
    """Empty: a value of any type."""
    description: str = ""
    default: Json = None
    """None: no default, which is also what null would mean to the API server."""
    keywords: dict[str, Json] = field(default_factory=dict)
    """Everything else, by its name in the schema: `minimum`, `x-kubernetes-validations`."""
    required: tuple[str, ...] = ()
    properties: dict[str, Schema] = field(default_factory=dict)
    items: Schema | None = None
    """Of a list."""
    values: Schema | None = None
    """Of a mapping whose keys are free."""

    def at(self, path: str) -> Schema:
        """What is inside at `spec.workers.secrets[]` or `labels{}`; the empty path is this one."""
        found = self
        for part in re.findall(r"\[\]|\{\}|\w+", path):
            match part:
                case "[]":
                    inner = found.items
                case "{}":
                    inner = found.values
                case name:
                    inner = found.properties.get(name)
            if inner is None:
                raise LookupError(f"no {part} on the way to {path}")
            found = inner
        return found

    def inside(self) -> Iterator[Schema]:
        """This schema and every one inside it."""
        yield self
        for inner in (*self.properties.values(), self.items, self.values):
            if inner is not None:
                yield from inner.inside()

    def to_json(self) -> dict[str, Json]:
        """As the API server reads it."""
        found: dict[str, Json] = {"type": self.type} if self.type else {}
        if self.description:
            found["description"] = self.description
        if self.default is not None:
            found["default"] = self.default
        found |= self.keywords
        if self.required:
            found["required"] = list(self.required)
        if self.properties:
            found["properties"] = {name: each.to_json() for name, each in self.properties.items()}
        if self.items is not None:
            found["items"] = self.items.to_json()
        if self.values is not None:
            found["additionalProperties"] = self.values.to_json()
        return found


def structural(model: type[BaseModel]) -> Schema:
    """The schema of a model, field names as outside."""
    root: dict[str, Json] = model.model_json_schema(by_alias=True)
    return _Reader(_mapping(root.get("$defs"))).read(root)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the nodes of one JSON schema."""

    definitions: dict[str, Json]

    def read(self, node: dict[str, Json]) -> Schema:
        plain = self._resolved(node)
        schema = Schema(
            type=str(plain.get("type", "")),
            description=" ".join(str(plain.get("description", "")).split()),
            keywords=_keywords(plain),
            required=tuple(map(str, _sequence(plain.get("required")))),
            properties={
                name: self.read(_mapping(each))
                for name, each in _mapping(plain.get("properties")).items()
            },
        )
        if "items" in plain:
            schema.items = self.read(_mapping(plain["items"]))
        match plain.get("additionalProperties"):
            case True:
                schema.keywords["x-kubernetes-preserve-unknown-fields"] = True
            case dict() as values:
                schema.values = self.read(values)
            case _:  # none, or false: unknown fields are pruned, and refused by `kubectl`
                pass
        schema.default = _default(plain.get("default"), schema)
        return schema

    def _resolved(self, node: dict[str, Json]) -> dict[str, Json]:
        """The node with what it refers to in place; null is no variant of it."""
        if "anyOf" in node:
            options = [_mapping(option) for option in _sequence(node["anyOf"])]
            kinds = [option for option in options if option.get("type") != "null"]
            if len(kinds) != 1:
                raise TypeError(f"a union does not survive in a CRD: {node.get('title')}")
            rest = {key: value for key, value in node.items() if key != "anyOf"}
            return self._resolved(rest | kinds[0])
        if "$ref" not in node:
            return node
        name = str(node["$ref"]).rpartition("/")[2]
        target = self._resolved(_mapping(self.definitions[name]))
        # A model tells about itself in full; what a field says of it only fits beside the others.
        own = {key: value for key, value in node.items() if key != "$ref"}
        return own | target if "properties" in target else target | own


def _keywords(node: dict[str, Json]) -> dict[str, Json]:
    found: dict[str, Json] = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        found["enum"] = [node["const"]]
    for exclusive, bound in _EXCLUSIVE.items():
        if exclusive in node:
            found |= {bound: node[exclusive], exclusive: True}
    return found


def _default(value: Json, schema: Schema) -> Json:
    """The default to write down: none where it says nothing, `{}` where the fields inside know."""
    if not schema.properties or not isinstance(value, dict):
        return None if value in _EMPTY else value
    slim = {name: _default(each, schema.properties[name]) for name, each in value.items()}
    return {
        name: each
        for name, each in slim.items()
        if each is not None and each != schema.properties[name].default
    }


def _mapping(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, Mapping) else {}


def _sequence(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
