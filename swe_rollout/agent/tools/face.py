"""Face: the form of every tool that is not a user's own class.

A face is the tool's description, as data, and the function that carries out a call. Several faces
share one shell, one search and one editor; each has the names, schema and texts of the system whose
policies know it. A tool with configuration is a function that returns its face; a job passes its
keyword parameters under `with`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec

from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import Parameter, ToolContext, ToolError, ToolSpec, bounded
from swe_rollout.errors import InternalError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

_P = ParamSpec("_P")
_LEAST_S = 0.1


@dataclass(frozen=True, slots=True)
class Call:
    """One call: arguments that have passed the schema, the sandbox, and the call's bounds."""

    arguments: Mapping[str, object]
    sandbox: Sandbox
    context: ToolContext
    _began: float = field(default_factory=time.monotonic)

    @property
    def remaining_s(self) -> float:
        """Seconds left for the next command; always above zero."""
        return max(_LEAST_S, self.context.timeout_s - (time.monotonic() - self._began))

    @property
    def expired(self) -> bool:
        """Whether the call's time is up."""
        return self.remaining_s <= _LEAST_S

    def given(self, arguments: Mapping[str, object]) -> Call:
        """Return the call with other arguments."""
        return replace(self, arguments=arguments)

    def text(self, name: str) -> str | None:
        """Return a string argument, or None if it was not given."""
        value = self.arguments.get(name)
        if value is not None and not isinstance(value, str):
            raise InternalError(f"the argument {name} passed the schema as {type(value).__name__}")
        return value

    def required(self, name: str) -> str:
        """Return a string argument. Raises ToolError if it was not given."""
        value = self.text(name)
        if value is None:
            raise ToolError(f"{name} is missing")
        return value

    def integer(self, name: str, *, least: int = 0, most: int = 2**53) -> int | None:
        """Return an integer argument, or None if not given. Raises ToolError outside its range."""
        value = self.arguments.get(name)
        if value is None:
            return None
        if not isinstance(value, int):
            raise InternalError(f"the argument {name} passed the schema as {type(value).__name__}")
        if not least <= value <= most:
            to = f"from {least} to {most}" if most < 2**53 else f"{least} or more"
            raise ToolError(f"{name} must be {to}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean argument."""
        value = self.arguments.get(name)
        return default if value is None else value is True

    def items(self, name: str) -> list[Any]:
        """Return an array argument, whose elements have passed the schema; [] if not given."""
        value = self.arguments.get(name)
        return value if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Face:
    """A tool under one name. It holds no state of an episode."""

    spec: ToolSpec
    act: Callable[[Call], Awaitable[Observation | str]]
    """Carries out a call; ToolError and file system errors become its observation."""
    acts_outside: bool = False
    """Whether it may act outside of the sandbox; see `ActsOutside`."""
    try_start: Callable[[Sandbox], Awaitable[None]] | None = None
    """Tries the program in the sandbox that carries out calls; see `RunsProgram`."""

    @classmethod
    def of(
        cls,
        act: Callable[[Call], Awaitable[Observation | str]],
        name: str,
        description: str,
        *parameters: Parameter,
        ends_episode: bool = False,
        schema: Arguments | None = None,
    ) -> Face:
        """Return a tool of this description; `schema` replaces `parameters`, as in `ToolSpec`."""
        return cls(ToolSpec(name, description, parameters, ends_episode, schema=schema), act)

    def named(self, name: str) -> Face:
        """Return the tool under another name."""
        return replace(self, spec=replace(self.spec, name=name))

    @property
    def keeps_time(self) -> bool:
        return True

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        """Carry out a call whose `arguments` have passed the schema."""
        try:
            seen = await self.act(Call(arguments, sandbox, context))
        except ToolError as error:
            seen = f"error: {error}"
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            # From the sandbox's file system: no permission, disk full, a file in place of a folder.
            seen = f"error: {error.strerror or type(error).__name__}"
        return bounded(Observation(seen) if isinstance(seen, str) else seen, context)


def renamed(make: Callable[_P, Face], name: str) -> Callable[_P, Face]:
    """Return a tool with configuration under another name."""

    @wraps(make)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> Face:
        return make(*args, **kwargs).named(name)

    return made
