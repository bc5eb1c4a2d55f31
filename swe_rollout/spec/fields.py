"""The fields of a RolloutJob as a flat list, for suggestions, `explain` and reference pages.

They are derived from the models in `swe_rollout.spec.job`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.model import Short, ShortUse


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field: its path, type, default and documentation."""

    path: tuple[str, ...]
    type: str
    """In words: `integer`, `text`, `list of text`, `one of a, b`, `mapping`."""
    default: str
    """The default as YAML; empty if the field has none."""
    required: bool
    doc: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path[-1]

    @property
    def dotted(self) -> str:
        """The path with dots, such as `spec.limits.turns`."""
        return ".".join(self.path)


@cache
def all_fields() -> tuple[SpecField, ...]:
    """Return all fields of a job, each before the fields inside it."""
    return tuple(_walk(RolloutJob, ()))


def fields_of(model: type[BaseModel]) -> tuple[SpecField, ...]:
    """Return the direct fields of a model nested in a free-form mapping."""
    return tuple(field for field in _walk(model, ()) if len(field.path) == 1)


def fields_in(parent: tuple[str, ...]) -> tuple[SpecField, ...]:
    """Return the direct fields of `parent`; none for a scalar."""
    return tuple(field for field in all_fields() if field.path[:-1] == parent)


def fields_named(name: str) -> tuple[SpecField, ...]:
    """Return the fields with this name, ignoring case."""
    return tuple(field for field in all_fields() if plain(field.name) == plain(name))


_LONGEST_NAME = 256
"""A longer name is not compared with those that there are."""


def fields_meant(path: str) -> tuple[SpecField, ...]:
    """Return the fields that a mistyped path or name most likely means, best first.

    Each part is looked for in the field of the part before, first among its direct fields.
    """
    parts = path.split(".")
    if len(path) > _LONGEST_NAME:
        return ()
    if len(parts) == 1:
        return _named_like(path, all_fields())
    found: tuple[SpecField, ...] = ()
    for part in parts if parts[0].lower() in ("metadata", "spec") else ("spec", *parts):
        top = found[0].path if found else ()
        below = [field for field in all_fields() if field.path[: len(top)] == top != field.path]
        direct = [field for field in below if len(field.path) == len(top) + 1]
        found = _named_like(part, direct) or _named_like(part, below) or found
        if found and found[0].path == top:
            break
    return found if found[0].path != ("spec",) else _named_like(parts[-1], all_fields())


def _named_like(name: str, fields: Sequence[SpecField]) -> tuple[SpecField, ...]:
    """Return the fields with the most similar names, whatever their capitals and dashes."""
    wanted = plain(name)
    names = sorted({plain(field.name) for field in fields}, key=len)
    longer = [each for each in names if each.startswith(wanted)] if len(wanted) > 1 else []
    order = dict.fromkeys([*longer, *get_close_matches(wanted, names, cutoff=0.65)])
    ordered = sorted(fields, key=lambda field: len(field.path))
    return tuple(field for each in order for field in ordered if plain(field.name) == each)


def plain(name: str) -> str:
    """Return only the letters and digits of a name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _walk(model: type[BaseModel], parent: tuple[str, ...]) -> Iterator[SpecField]:
    for name, info in model.model_fields.items():
        path = (*parent, info.alias or name)
        inner = _model_in(info.annotation)
        doc = " ".join((info.description or (inner.__doc__ if inner else None) or "").split())
        kind = _type_words(info.annotation)
        yield SpecField(path, kind, _default(info), info.is_required(), doc)
        if inner is not None:
            yield from _walk(inner, path)


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(_model_in, get_args(annotation))), None)
    return None


def _type_words(annotation: object) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_words(args[0])
    if origin is Literal:
        return "one of " + ", ".join(map(str, args)) if len(args) > 1 else str(args[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_type_words(arg) for arg in args if arg is not type(None))
    if origin is tuple:
        return f"list of {_type_words(args[0])}"
    return "mapping" if origin is dict else _class_words(annotation)


def _class_words(annotation: object) -> str:
    plain: dict[type, str] = {str: "text", int: "integer", float: "number", bool: "true or false"}
    match annotation:
        case type() if issubclass(annotation, StrEnum):
            return "one of " + ", ".join(annotation)
        case type() if issubclass(annotation, ShortUse):
            return "name or {use, with}"
        case type() if issubclass(annotation, Short):
            return "name or mapping"
        case type() if issubclass(annotation, BaseModel):
            return "mapping"
        case _:
            return next((words for kind, words in plain.items() if annotation is kind), "any")


def _short(value: object) -> str:
    return value.use if isinstance(value, ShortUse) else str(value)


def _default(info: FieldInfo) -> str:
    default = info.default
    if info.default_factory_takes_validated_data:
        # What it is where no other field says otherwise.
        default = info.get_default(call_default_factory=True, validated_data={})
    match default:
        case BaseModel() | None:
            return ""
        case bool() as value:
            return str(value).lower()
        case tuple() as values:
            return f"[{', '.join(map(_short, values))}]"
        case str() as value:
            return value or '""'
        case value:
            return "" if info.is_required() or info.default_factory else str(value)
