"""Take plain values of the command line as they are, without the library that checks all others.

typer checks each value by pydantic, whose import takes longer than most verbs. Words, flags and the
members of a choice need no more than is done here; whatever else there is goes to typer.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


def take_plain_values(parameters: list[Any]) -> None:
    """Check plain values of these parameters here. Other versions of typer have no such hook."""
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = _PlainValue(parameter.type_descriptor.annotation)  # noqa: SLF001


class _PlainValue:
    """What typer asks for the value of one parameter."""

    def __init__(self, kind: object) -> None:
        self._kind = kind

    def coerce(self, value: object, param: Any, ctx: object) -> object:
        """Return the value as its type; raises what typer raises for one that is wrong."""
        is_many = param.multiple or param.nargs == -1
        if value is None or (is_many and not value):
            return () if is_many else None
        if not is_many:
            if type(value) is self._kind and self._kind in (str, bool, int):
                return value
            if isinstance(self._kind, type) and issubclass(self._kind, Enum):
                member = next((each for each in self._kind if value in (each, each.value)), None)
                if member is not None:
                    return member
        param._runtime_param = None  # noqa: SLF001 - typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
