"""Signature: a function's parameters and docstring, read as a tool's schema."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Final, Literal, Union, get_args, get_origin, get_type_hints

from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolContext
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox

_TYPES: Final[Mapping[object, ParameterType]] = {
    str: ParameterType.STRING,
    int: ParameterType.INTEGER,
    float: ParameterType.NUMBER,
    bool: ParameterType.BOOLEAN,
    list[str]: ParameterType.STRINGS,
    list[int]: ParameterType.INTEGERS,
    list[float]: ParameterType.NUMBERS,
}
_INJECTED: Final[Mapping[str, type]] = {"sandbox": Sandbox, "context": ToolContext}
_ARGS: Final = re.compile(r"^(?:Args|Arguments):[ \t]*\n", re.MULTILINE)
_ARG: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a tool's function, grouped by who supplies them."""

    description: str
    """The first paragraph of the docstring."""
    parameters: tuple[Parameter, ...]
    """Parameters that the policy supplies."""
    configuration: Mapping[str, inspect.Parameter]
    """Keyword-only parameters, which the job supplies, with resolved annotations."""
    harness: Mapping[str, str]
    """Names of parameters that the harness supplies, each with `sandbox` or `context`."""

    @classmethod
    def of(cls, function: Callable[..., object]) -> Signature:
        """Read a function. Raises ExtensionError if it can't be offered to a policy."""
        return _Function(function).read()

    def injected(self, **values: object) -> dict[str, object]:
        """Return the values of the parameters that the harness supplies."""
        return {name: values[which] for name, which in self.harness.items()}


class _Function:
    """A function that is being read."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._globals = getattr(inspect.unwrap(function), "__globals__", {})
        self._doc = inspect.getdoc(function) or ""
        self._texts = _documented(self._doc)

    def read(self) -> Signature:
        description = " ".join(re.split(r"\n\s*\n", self._doc.strip(), maxsplit=1)[0].split())
        if not description:
            raise self._unreadable("it has no docstring, which tells the policy what it does")
        parameters: list[Parameter] = []
        configuration: dict[str, inspect.Parameter] = {}
        harness: dict[str, str] = {}
        for name, parameter in inspect.signature(self._function).parameters.items():
            annotation = self._annotation(parameter)
            if (injected := _injected(name, annotation)) is not None:
                harness[name] = injected
            elif parameter.kind is parameter.KEYWORD_ONLY:
                configuration[name] = parameter.replace(annotation=annotation)
            elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                parameters.append(self._parameter(parameter, annotation))
            else:
                raise self._unreadable(
                    f"the policy can't give the parameter {parameter} by name; "
                    "name each one, with its type"
                )
        return Signature(description, tuple(parameters), configuration, harness)

    def _unreadable(self, why: str) -> ExtensionError:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        fix = "see docs/how-to/extend/tools.md for what a tool's function looks like"
        return ExtensionError(f"the tool {name} can't be made", why=why, fix=fix)

    def _annotation(self, parameter: inspect.Parameter) -> object:
        """Return the type, or the text of an annotation that is imported only for type checking."""
        text = parameter.annotation
        if not isinstance(text, str):
            return text
        holder = SimpleNamespace(__annotations__={parameter.name: text})
        try:
            hints = get_type_hints(holder, globalns=self._globals, include_extras=True)
        except NameError:
            return text
        return hints[parameter.name]

    def _parameter(self, parameter: inspect.Parameter, annotation: object) -> Parameter:
        name, text = parameter.name, self._texts.get(parameter.name, "")
        if get_origin(annotation) is Annotated:
            annotation, *extras = get_args(annotation)
            text = next((extra for extra in extras if isinstance(extra, str)), text)
        required = parameter.default is parameter.empty
        choices: tuple[str | int, ...] = ()
        plain = annotation if required else _without_none(annotation)
        if get_origin(plain) is Literal:
            choices = get_args(plain)
            plain = type(choices[0]) if len({type(choice) for choice in choices}) == 1 else plain
        if plain not in (str, int) if choices else plain not in _TYPES:
            raise self._unreadable(
                f"the parameter {name} has the type {_shown(annotation)}; a policy can give str, "
                "int, float, bool, list[str], list[int], list[float] or Literal, and `| None` "
                "with a default; what the job configures stands behind `*`"
            )
        return Parameter(name, text, _TYPES[plain], required=required, choices=choices)


def _injected(name: str, annotation: object) -> str | None:
    """Return which of the harness's values a parameter takes, or None if it takes none."""
    for which, kind in _INJECTED.items():
        spelled = isinstance(annotation, str) and annotation.rpartition(".")[2] == kind.__name__
        unmarked = annotation is inspect.Parameter.empty and name == which
        if annotation is kind or spelled or unmarked:
            return which
    return None


def _without_none(annotation: object) -> object:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    others = [each for each in get_args(annotation) if each is not NoneType]
    return others[0] if len(others) == 1 else annotation


def _shown(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return "none"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _documented(doc: str) -> dict[str, str]:
    """Return the descriptions in a Google-style `Args:` section by parameter."""
    found = _ARGS.search(doc)
    texts: dict[str, str] = {}
    name, indent = "", None
    for line in doc[found.end() :].splitlines() if found else ():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if text and not depth:
            break
        indent = depth if indent is None and text else indent
        if depth == indent and (item := _ARG.fullmatch(text)):
            name, text = item[1], item[2]
        if name and text:
            texts[name] = f"{texts.get(name, '')} {text}".strip()
    return texts
