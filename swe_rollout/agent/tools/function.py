"""Make a tool from a typed function; `@tool` is for its options, and names it without a module.

The policy sees the function's name, the first paragraph of its docstring, and its parameters. The
harness passes `sandbox` and `context`. Keyword-only parameters are configuration, which the job
sets once (`{use: module:attr, with: {…}}`) and the policy never sees.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, overload

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from swe_rollout.agent.tools import TOOLS
from swe_rollout.agent.tools.base import (
    GRACE_S,
    Tool,
    ToolContext,
    ToolError,
    ToolSpec,
    bounded,
    late,
    readable,
)
from swe_rollout.agent.tools.signature import Signature
from swe_rollout.errors import ExtensionFailedError, SweRolloutError, failure_of
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation


class FunctionTool(Tool):
    """A tool made from a function; `bind` sets its configuration."""

    def __init__(
        self,
        function: Callable[..., object],
        *,
        name: str | None = None,
        ends_episode: bool = False,
        configuration: Mapping[str, object] | None = None,
    ) -> None:
        """Raises ExtensionError if the signature or docstring can't be offered to a policy."""
        self._function = function
        self._signature = Signature.of(function)
        self._configuration = dict(configuration or {})
        own = self._signature.description, self._signature.parameters
        self._spec = ToolSpec(name or function.__name__, *own, ends_episode=ends_episode)
        # Registered where it was defined, so that `module:attr` finds it.
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def name(self) -> str:
        """The name by which the policy calls it."""
        return self._spec.name

    @property
    def keeps_time(self) -> bool:
        return True

    @property
    def acts_outside(self) -> bool:
        """Whether it takes neither sandbox nor context, and so can only act elsewhere."""
        return not self._signature.harness

    @property
    def missing(self) -> tuple[str, ...]:
        """Configuration without a default that was not bound."""
        needed = self._signature.configuration.items()
        return tuple(
            name
            for name, parameter in needed
            if parameter.default is inspect.Parameter.empty and name not in self._configuration
        )

    def bind(self, parameters: Mapping[str, object]) -> FunctionTool:
        """Return the tool with this configuration. Raises TypeError for a wrong name or value."""
        given = {name: self._configured(name, value) for name, value in parameters.items()}
        return FunctionTool(
            self._function,
            name=self.name,
            ends_episode=self._spec.ends_episode,
            configuration=self._configuration | given,
        )

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        """Call the function, and stop it when its time is up.

        ToolError, ValueError and file errors become an observation; sandbox errors propagate; any
        other exception becomes an ExtensionFailedError, which ends the episode as a failure.
        """
        injected = self._signature.injected(sandbox=sandbox, context=context)
        call = partial(self._function, **arguments, **self._configuration, **injected)
        try:
            async with asyncio.timeout(context.timeout_s + GRACE_S) as clock:
                result = await _called(call)
        except (ToolError, ValueError) as error:
            return bounded(Observation(f"error: {error}"), context)
        except TimeoutError:
            if not clock.expired():
                raise
            return bounded(late(context), context)
        except (SweRolloutError, ConnectionError):
            raise
        except OSError as error:
            return bounded(Observation(f"error: {error.strerror or error}"), context)
        except (Exception, SystemExit) as error:
            raise failure_of(
                error,
                ExtensionFailedError,
                f"the tool {self.name}",
                fix="correct the tool; what the policy should read is raised as ToolError",
            ) from error
        return bounded(self._observation(result), context)

    def _configured(self, name: str, value: object) -> object:
        known = self._signature.configuration
        if name not in known:
            close = get_close_matches(name, known, n=1)
            has = f"did you mean {close[0]}?" if close else f"it has {', '.join(known) or 'none'}"
            raise TypeError(f"{self.name} has no parameter {name}; {has}")
        if known[name].annotation is inspect.Parameter.empty:
            return value
        try:
            return _adapter(known[name].annotation).validate_python(value)
        except ValidationError as error:
            raise TypeError(f"{name}: {error.errors()[0]['msg']}") from error

    def _observation(self, result: object) -> Observation:
        match result:
            case Observation():
                return result
            case str():
                return Observation(result)
            case bytes():
                return Observation(readable(result))
            case _:
                raise ExtensionFailedError(
                    f"the tool {self.name} returned {type(result).__name__}",
                    fix="return str, bytes or Observation",
                    by=self._function,
                )


_VALUES = frozenset(
    ["str", "bytes", "Observation", "int", "float", "bool", "dict", "list", "tuple"]
)


def of_function(function: Callable[..., object], given: Collection[str]) -> object:
    """Return the tool that a function is, or the function if it makes tools itself.

    Its return type says which. Without one, a function that can be called with the parameters that
    are `given` makes tools, and one that lacks what a policy would give is a tool.
    """
    return function if _makes_tools(function, given) else FunctionTool(function)


def _makes_tools(function: Callable[..., object], given: Collection[str]) -> bool:
    signature = inspect.signature(function)
    returned = signature.return_annotation
    if inspect.iscoroutinefunction(function):
        return False
    if returned is not inspect.Signature.empty:
        words = set(re.findall(r"\w+", inspect.formatannotation(returned)))
        is_value = words == {"None"} or not words.isdisjoint(_VALUES)
        return not is_value or any("Tool" in word for word in words)
    needed = (
        name
        for name, each in signature.parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    )
    return all(name in given for name in needed)


@overload
def tool(function: Callable[..., object], /) -> FunctionTool: ...
@overload
def tool(
    *, name: str | None = None, ends_episode: bool = False
) -> Callable[[Callable[..., object]], FunctionTool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    ends_episode: bool = False,
) -> FunctionTool | Callable[[Callable[..., object]], FunctionTool]:
    """Make a tool from a function and register it: `@tool` or `@tool(name=…, ends_episode=True)`.

    With `ends_episode`, the policy submits its work by calling it. Raises ExtensionError if the
    function can't be offered to a policy.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):
        raise ExtensionError(
            f"{name!r} is no name of a tool",
            why="a policy calls it by letters, digits, `_` and `-`, at most 64",
            fix="write it like look_up",
        )
    if function is None:
        return partial(_registered, name=name, ends_episode=ends_episode)
    if not inspect.isroutine(function):
        raise ExtensionError(
            f"{function!r:.60} can't be made a tool",
            why="@tool takes a function",
            fix="decorate a function; a class of your own is a `Tool` "
            "(docs/how-to/extend/tools.md)",
        )
    return _registered(function, name=name, ends_episode=ends_episode)


def _registered(
    function: Callable[..., object], *, name: str | None, ends_episode: bool
) -> FunctionTool:
    made = FunctionTool(function, name=name, ends_episode=ends_episode)
    # A tool named `bash` may replace the built-in one, because a job names it as module:attr.
    if not TOOLS.is_shipped(made.name):
        TOOLS.register(made)
    return made


async def _called(call: Callable[[], object]) -> object:
    """Await a coroutine function here; run a plain function, which may block, in a thread."""
    if inspect.iscoroutinefunction(call):
        return await call()
    result = await asyncio.to_thread(_without_stop_iteration, call)
    return await result if inspect.isawaitable(result) else result


def _without_stop_iteration(call: Callable[[], object]) -> object:
    try:
        return call()
    except StopIteration as error:
        # A thread can't pass it on: whoever awaits the thread would wait for ever.
        raise RuntimeError("a StopIteration left it, as of next() without a default") from error


def _adapter(annotation: Any) -> TypeAdapter[object]:  # as typed by pydantic
    try:
        return TypeAdapter(annotation)
    except PydanticUserError:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
