"""What the tools of the set share: typed arguments, and failures worded as observations."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import (
    Tool,
    ToolContext,
    ToolError,
    ToolSpec,
    cut_middle,
    text_argument,
)
from swe_rollout.errors import InternalError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

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
        """The time that is left for the next command; never quite nothing."""
        return max(_LEAST_S, self.context.timeout_s - (time.monotonic() - self._began))

    @property
    def expired(self) -> bool:
        """Whether the time of the call is over."""
        return self.remaining_s <= _LEAST_S

    def text(self, name: str) -> str | None:
        """Return a string argument; none when it was not given."""
        return text_argument(self.arguments, name)

    def required(self, name: str) -> str:
        """Return a string argument; ToolError when it was not given."""
        value = self.text(name)
        if value is None:
            raise ToolError(f"{name} is missing")
        return value

    def integer(self, name: str, *, least: int = 0, most: int = 2**53) -> int | None:
        """Return an integer argument; ToolError outside its range, none when it was not given."""
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


@dataclass(frozen=True, slots=True)
class SchemaSpec(ToolSpec):
    """A tool whose arguments have objects in them."""

    schema: Arguments | None = None

    @property
    def arguments(self) -> Arguments:
        """The arguments that a call may have."""
        return self.schema or Arguments.of({"properties": {}})


class ClaudeCodeTool(Tool):
    """A tool of the set: `spec`, and `call`, which does the work. Holds nothing of an episode."""

    def __init__(self, spec: ToolSpec) -> None:
        """Offer the tool as `spec`."""
        self._spec = spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @abstractmethod
    async def call(self, call: Call) -> Observation | str:
        """Carry out a call. ToolError and errors of the file system become its observation."""

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        try:
            seen = await self.call(Call(arguments, sandbox, context))
        except ToolError as error:
            seen = f"error: {error}"
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            # Of the sandbox's file system: a missing permission, a full disk, a file for a folder.
            seen = f"error: {error.strerror or type(error).__name__}"
        observation = Observation(seen) if isinstance(seen, str) else seen
        text = observation.text
        shown = cut_middle(text.encode(errors="replace").decode(), context.output_bytes)
        if shown == text:
            return observation
        return Observation(
            shown, observation.exit_code, timed_out=observation.timed_out, truncated=True
        )
