"""The base of all RolloutJob models: field names, bounds, one-of variants.

A variant is an optional member; exactly one of a model's variants is set, as in a pod's `volumes`,
because a CRD's structural schema has no unions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

REFERENCE: Final = r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_.]*)?$"
"""A name, or `module:attr`."""


def _reference(value: str) -> str:
    if not re.match(REFERENCE, value):
        raise ValueError("a name, or module:attr such as my_extensions:lint")
    return value


Reference = Annotated[str, StringConstraints(max_length=256), AfterValidator(_reference)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _PydanticMeta
else:
    _PydanticMeta = type(BaseModel)


class _Listed(_PydanticMeta):
    """Makes `dir()` of a class list its own names and fields only; pydantic's still work."""

    def __dir__(self) -> list[str]:
        return _without_pydantic([*super().__dir__(), *self.__annotations__])


class Model(BaseModel, metaclass=_Listed):
    """The base model: camelCase in files, frozen, no unknown fields."""

    def __dir__(self) -> list[str]:
        return _without_pydantic(super().__dir__())

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        # The invalid value may be a password.
        hide_input_in_errors=True,
    )


_OF_PYDANTIC: Final = frozenset(name for name in dir(BaseModel) if not name.startswith("__"))


def _without_pydantic(names: Iterable[str]) -> list[str]:
    """Return the names that a shell should complete."""
    return sorted({name for name in names if name not in _OF_PYDANTIC and name != "model_config"})


class OneOf(Model):
    """A model of which exactly one variant is set."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        names = [to_camel(name) for name in type(self).variants()]
        chosen = [name for name in type(self).variants() if getattr(self, name) is not None]
        if len(chosen) != 1:
            found = " and ".join(to_camel(name) for name in chosen) or "none"
            raise ValueError(f"set exactly one of {', '.join(names)}; found {found}")
        return self

    @classmethod
    def variants(cls) -> tuple[str, ...]:
        """Return the names of the variants: the members that default to None."""
        return tuple(
            name
            for name, info in cls.model_fields.items()
            if info.default is None and isinstance(info.json_schema_extra, dict)
        )


def unset() -> Any:  # as pydantic types Field itself
    """Declare a field that is omitted while unset, so that stored digests stay valid."""
    return Field(default=None, exclude_if=lambda value: value is None)


def variant() -> Any:
    """Declare a variant."""
    return Field(default=None, json_schema_extra={"x-variant": True})


def added_variant() -> Any:
    """Declare a variant that is omitted while unset, so that stored digests stay valid."""
    return Field(
        default=None, json_schema_extra={"x-variant": True}, exclude_if=lambda value: value is None
    )


NOT_PLAIN: Final = "not_plain"
"""The type of problems of a value in parameters, whose place in them is `at`."""
_MOST_DEPTH: Final = 64
_MOST_VALUES: Final = 1 << 20
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Refuse values that no job file can hold: Python and JSON hand them over, too."""
    todo: list[tuple[tuple[str | int, ...], object]] = [((), parameters)]
    for place, value in todo:
        match value:
            case float() if not math.isfinite(value):  # not a number equals nothing
                raise _not_plain(place, f"expected a finite number, found {value}")
            case str() if _NO_TEXT.search(value):
                raise _not_plain(place, "a text can't contain NUL or half a surrogate pair")
            case dict():
                todo += (((*place, key), inner) for key, inner in value.items())
            case list() | tuple():
                todo += (((*place, at), inner) for at, inner in enumerate(value))
        if len(place) > _MOST_DEPTH or len(todo) > _MOST_VALUES:
            raise _not_plain(place[:1], "it holds itself, or too many values")
    return parameters


def _not_plain(place: tuple[str | int, ...], problem: str) -> PydanticCustomError:
    shown = ".".join(map(str, place))
    return PydanticCustomError(
        NOT_PLAIN, "{shown}: {problem}", {"at": place, "shown": shown, "problem": problem}
    )


Parameters = Annotated[dict[str, Any], AfterValidator(_plain)]
"""Values of any form, as a job file can hold them."""


class Use(Model):
    """An extension: its name, and the parameters it is created with."""

    use: Reference
    """A built-in name, an installed package's entry point, or `module:attr`."""
    with_: Parameters = Field(default_factory=dict, alias="with")
    """The extension's parameters."""


class Short(Model):
    """A model that is written as the bare value of one field if no other one is set."""

    short_field: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        return {cls.short_field: value} if isinstance(value, str) else value

    @model_serializer(mode="wrap")
    def _short(self, written: Any) -> object:
        long: dict[str, object] = written(self)
        name = self.short_field
        bare = type(self).model_construct(**{name: getattr(self, name)})
        return long[name] if name in long and (len(long) == 1 or self == bare) else long

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        # A structural schema has no unions: the API server accepts any value, and the worker checks
        # it with the model.
        return {"x-kubernetes-preserve-unknown-fields": True, "description": cls.__doc__ or ""}


class ShortUse(Short, Use):
    """An extension that is written as its bare name if it has no parameters."""

    short_field = "use"
