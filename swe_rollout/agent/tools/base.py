"""Tool: a schema the policy reads, and a run in the episode's sandbox.

A tool's own failure (no such file, a command that fails) is an observation; a lost sandbox is a
`SandboxError` and ends the episode. Tools are stateless: one instance serves all episodes. The
state of an episode's tools is in `ToolContext.state`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Final, Protocol, runtime_checkable

from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.errors import ExtensionFailedError, InternalError, MisuseError, boundary
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.types.turn import Observation, ToolCall

GRACE_S: Final = 10.0
"""Seconds beyond a call's limit, in which a command that exceeds it can end gracefully."""


class ToolError(Exception):
    """A call can't be carried out; the policy reads the text as `error: …` and goes on."""


class ParameterType(Enum):
    """The type of an argument."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    STRINGS = "array of string"
    INTEGERS = "array of integer"
    NUMBERS = "array of number"

    def schema(self) -> dict[str, object]:
        """Return its JSON schema."""
        outer, _, inner = self.value.partition(" of ")
        return {"type": outer, "items": {"type": inner}} if inner else {"type": outer}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool."""

    name: str
    description: str
    type: ParameterType = ParameterType.STRING
    required: bool = False
    choices: tuple[str | int, ...] = ()
    """The allowed values; all values of the type if empty."""

    def schema(self) -> dict[str, object]:
        """Return its JSON schema."""
        choices: dict[str, object] = {"enum": list(self.choices)} if self.choices else {}
        return {**self.type.schema(), **choices, "description": self.description}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the policy sees it."""

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    ends_episode: bool = False
    """Whether the policy hands in its work by calling it."""
    schema: Arguments | None = field(default=None, kw_only=True)
    """Replaces `parameters` if arguments are nested or the schema comes from outside."""
    output_bytes: int | None = field(default=None, kw_only=True)
    """Limit for one result; by default that of the job."""

    @property
    def arguments(self) -> Arguments:
        """The arguments that a call may have."""
        return self.schema or _arguments(self.parameters)

    def function(self) -> dict[str, object]:
        """Return OpenAI's function form, which chat templates read."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.arguments.schema,
            },
        }

    def problems(self, arguments: Mapping[str, object]) -> list[str]:
        """Return the problems with the arguments of a call, worded for the policy."""
        return self.arguments.problems(arguments)


@cache
def _arguments(parameters: tuple[Parameter, ...]) -> Arguments:
    return Arguments.of(
        {
            "type": "object",
            "properties": {p.name: p.schema() for p in parameters},
            "required": [p.name for p in parameters if p.required],
        }
    )


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The bounds of one call, and the state of the episode's tools."""

    timeout_s: float
    output_bytes: int
    """Maximum size of the observation; the middle of a longer one is replaced by a marker."""
    state: ToolState = field(default_factory=ToolState)
    """The state of the episode's tools, shared by all of its calls."""
    remaining_s: float = math.inf
    """Time left in the episode, which limits every call regardless of its tool's own limit."""
    delegate: Delegate | None = None
    """Starts a sub-agent; None if there is no model for it."""


class Delegate(Protocol):
    """Starts a sub-agent of the episode and returns its last message."""

    async def __call__(self, prompt: str, *, has_tools: bool) -> str:
        """Return the last message of the sub-agent.

        With `has_tools` it has its parent's tools except those that end the episode; otherwise it
        has none. Raises ToolError if no further agent may be started.
        """
        ...


class Tool(Protocol):
    """Something the policy can call."""

    @property
    def spec(self) -> ToolSpec:
        """Its schema."""
        ...

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        """Carry out a call whose `arguments` have passed the schema."""
        ...


@runtime_checkable
class Configurable(Protocol):
    """A tool that may lack some of its configuration."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of parameters that have no default and were not given."""
        ...


@runtime_checkable
class ActsOutside(Protocol):
    """A tool that may act outside of the sandbox, and keeps no state of an episode."""

    @property
    def acts_outside(self) -> bool:
        """Whether the tool acts outside. A resumed episode then gets the recorded result of a call
        instead of making the call again.
        """
        ...


@runtime_checkable
class RunsProgram(Protocol):
    """A tool that may call a program in the sandbox, which the sandbox may be unable to start."""

    @property
    def try_start(self) -> Callable[[Sandbox], Awaitable[None]] | None:
        """Finds out whether the program can be started, and leaves nothing running; None without a
        program. Raises ExtensionFailedError if it can't.
        """
        ...


@runtime_checkable
class KeepsTime(Protocol):
    """A tool that ends each call itself, in the time of its context."""

    @property
    def keeps_time(self) -> bool:
        """Whether it does."""
        ...


async def run_in_time(
    tool: Tool, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    """Run a tool, and stop one that does not keep to the time of its context.

    Only what awaits can be stopped: code that blocks holds up every episode of the process.
    """
    if isinstance(tool, KeepsTime) and tool.keeps_time:
        return await tool.run(arguments, sandbox, context)
    try:
        async with asyncio.timeout(context.timeout_s + GRACE_S) as clock:
            return await tool.run(arguments, sandbox, context)
    except TimeoutError:
        if not clock.expired():
            raise
        return late(context)


def late(context: ToolContext) -> Observation:
    """Return what the policy reads of a call that was stopped."""
    text = f"stopped after {context.timeout_s:g} s: the time for one call was over"
    return Observation(text, timed_out=True)


@dataclass(frozen=True, slots=True)
class Toolset:
    """Several tools under one name; a job that names it gets all of them, in this order."""

    tools: tuple[Tool | ToolUse | str, ...]
    """Tools, or their names as in a job."""
    name: str = ""
    """The name under which a program registers this object; empty if named as `module:attr`."""


class Toolbox:
    """The tools of a job, in the order they are offered."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in order."""
        return tuple(self._tools.values())

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The schemas, in order."""
        return tuple(tool.spec for tool in self._tools.values())

    def only(self, names: Sequence[str]) -> Toolbox:
        """Return the toolbox with only the named tools, in that order."""
        names = [names] if isinstance(names, str) else names
        if missing := [name for name in names if name not in self._tools]:
            has = ", ".join(self._tools)
            raise MisuseError(
                f"the agent has no tool {missing[0]}", why=f"it has {has}", fix="name one of those"
            )
        return Toolbox(self._tools[name] for name in names)

    async def try_start(self, sandbox: Sandbox) -> None:
        """Find out whether the sandbox can start the tools' programs, before the policy acts in it.

        To the policy it would be an observation, and the episode's reward 0. Raises
        ExtensionFailedError.
        """
        tools = (tool for tool in self._tools.values() if isinstance(tool, RunsProgram))
        for start in dict.fromkeys(tool.try_start for tool in tools):
            if start is not None:
                await start(sandbox)

    def ends_episode(self, call: ToolCall) -> bool:
        """Return whether the call submits the work."""
        return self._tools[call.name].spec.ends_episode

    async def run(self, call: ToolCall, sandbox: Sandbox, context: ToolContext) -> Observation:
        """Run a call whose status is ok; the observation fits its limit and has its duration."""
        tool = self._tools.get(call.name)
        if tool is None:
            raise InternalError(f"a call of the unknown tool {call.name} reached the toolbox")
        context = replace(context, output_bytes=tool.spec.output_bytes or context.output_bytes)
        began = time.monotonic()
        found: object
        async with boundary(InternalError, f"the tool {call.name}"):
            try:
                found = await run_in_time(tool, call.arguments, sandbox, context)
            except ToolError as error:
                found = Observation(f"error: {error}")
        took = time.monotonic() - began
        if not isinstance(found, Observation) or not isinstance(found.text, str):
            raise ExtensionFailedError(
                f"the tool {call.name} returned {found!r:.80}",
                fix="return an Observation, whose text is a str",
                by=type(tool),
            )
        return replace(bounded(found, context), duration_s=took)


def encodable(text: str) -> str:
    """Return text that can be recorded: a lone surrogate, as in a file name, is replaced."""
    return text.encode(errors="replace").decode()


def readable(output: bytes) -> str:
    """Decode output for the policy: invalid UTF-8 becomes U+FFFD, and NUL is written out."""
    return output.decode("utf-8", errors="replace").replace("\0", r"\x00")


def bounded(observation: Observation, context: ToolContext) -> Observation:
    """Return a storable observation whose text fits the bounds of the call."""
    text = readable(observation.text.encode(errors="replace"))
    shown = cut_middle(text, context.output_bytes)
    return replace(observation, text=shown, truncated=observation.truncated or shown != text)


def cut_middle(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes of UTF-8: keep both ends, and note the omitted size between them.

    If there is no room for that note, keep only the start.
    """
    data = text.encode()
    if len(data) <= limit:
        return text
    room = limit - len(_marker(len(data)))
    if room <= 0:
        return data[:limit].decode(errors="ignore")
    # A cut may split a character; the rest of it is dropped.
    head = data[: (room + 1) // 2].decode(errors="ignore")
    tail = data[len(data) - room // 2 :].decode(errors="ignore")
    return head + _marker(len(data) - len(head.encode()) - len(tail.encode())) + tail


def _marker(omitted: int) -> str:
    return f"\n[... {omitted} bytes omitted ...]\n"
