"""The environment variable of every option: `--store` of `run` is `SWE_ROLLOUT_RUN_STORE`.

An option on the command line comes before its variable, and that before the job file. A secret is
never an option: options name the variables that hold secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any

from swe_rollout.cli.output import say


def name_variables(parameters: Sequence[Any], prefix: str | None) -> None:
    """Name the variable of each option after its long name; `--help` and `--version` have none."""
    for each in parameters:
        if each.param_type_name != "option":
            continue
        each.show_envvar = False
        if each.is_eager or prefix is None:
            each.allow_from_autoenv = False
        elif each.envvar is None:  # that of a worker is named by Kubernetes
            long = max(each.opts, key=len).lstrip("-")
            each.envvar = f"{prefix}_{re.sub(r'[^A-Z0-9]', '_', long.upper())}"


def variables_note(parameters: Sequence[Any]) -> str:
    """Return the line of `--help` that says which variable stands for an option; empty: none."""
    named = [each for each in parameters if _variable(each)]
    if not named:
        return ""
    example = next((each for each in named if not each.is_flag), named[0])
    option = max(example.opts, key=len)
    return f"As a variable, {option} is {example.envvar}; so are all."


def warn_of_unknown_variables(parameters: Sequence[Any], prefix: str | None) -> None:
    """Name variables on stderr that look like those of this verb, and are none."""
    if prefix is None or not any(name.startswith(f"{prefix}_") for name in os.environ):
        return

    known = [name for each in parameters if (name := _variable(each))]
    for name in sorted(os.environ):
        if name.startswith(f"{prefix}_") and name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            say(f"the variable {name} stands for no option{hint}")


def _variable(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option" and not parameter.is_eager
    return parameter.envvar if is_option and isinstance(parameter.envvar, str) else ""


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
