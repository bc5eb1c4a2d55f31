"""What every model of a RolloutJob is made of: names outside, bounds, one-of variants.

A variant is one optional member, and exactly one of a model's is set, as in a pod's `volumes`:
unions do not survive in a CRD's structural schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class Model(BaseModel):
    """The base: camelCase outside, frozen, no unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class OneOf(Model):
    """Exactly one member is set."""

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
        """The members of which one is set: those that default to none."""
        return tuple(
            name
            for name, info in cls.model_fields.items()
            if info.default is None and isinstance(info.json_schema_extra, dict)
        )


def variant() -> Any:  # as pydantic types Field itself
    """A member that is one of several."""
    return Field(default=None, json_schema_extra={"x-variant": True})
