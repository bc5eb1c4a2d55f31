"""What a tool is: a schema the policy reads, and a run in the episode's sandbox.

A tool's own failure (no such file, a command that fails) is an observation; a lost sandbox is a
`SandboxError` and ends the episode. Tools hold no state: one instance serves all episodes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Protocol

from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from swe_rollout.sandbox.base import Sandbox
    from swe_rollout.trajectory import Observation, ToolCall


class Kind(Enum):
    """The type of an argument. Its value is how a problem with it reads."""

    STRING = "a string"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    INTEGERS = "an array of integers"


_SCHEMAS: dict[Kind, dict[str, object]] = {
    Kind.STRING: {"type": "string"},
    Kind.INTEGER: {"type": "integer"},
    Kind.NUMBER: {"type": "number"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INTEGERS: {"type": "array", "items": {"type": "integer"}},
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool of our own."""

    name: str
    description: str
    kind: Kind = Kind.STRING
    required: bool = False
    choices: tuple[str, ...] = ()
    """The values allowed; empty: all of the kind."""

    def schema(self) -> dict[str, object]:
        """Its JSON schema."""
        choices: dict[str, object] = {"enum": list(self.choices)} if self.choices else {}
        return {**_SCHEMAS[self.kind], **choices, "description": self.description}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the policy sees it."""

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    ends_episode: bool = False
    """Whether calling it is how the policy hands in its work."""
    given: Arguments | None = None
    """The schema of a tool from outside, in place of `parameters`."""

    @classmethod
    def of_function(cls, function: object) -> ToolSpec:
        """A tool in OpenAI's function form; ValueError that says what is wrong with it."""
        match function:
            case {"type": "function", "function": dict(inner)}:
                return cls.of_function(inner)
            case {"name": str(name), **rest} if name:
                return cls(name, _description(name, rest), given=_given(name, rest))
            case _:
                raise ValueError("a function has a name and parameters")

    @property
    def arguments(self) -> Arguments:
        """What a call may be given."""
        if self.given is not None:
            return self.given
        return _arguments(self.parameters)

    def function(self) -> dict[str, object]:
        """The OpenAI function form that chat templates read."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.arguments.schema,
            },
        }

    def problems(self, arguments: Mapping[str, object]) -> list[str]:
        """What is wrong with the arguments of a call, in words for the policy."""
        return self.arguments.problems(arguments)


def _description(name: str, function: Mapping[object, object]) -> str:
    match function.get("description"):
        case None:
            return ""
        case str(text):
            return text
        case _:
            raise ValueError(f"the description of the function {name!r} is no text")


def _given(name: str, function: Mapping[object, object]) -> Arguments:
    schema = function.get("parameters")
    try:
        return Arguments.of({"type": "object", "properties": {}} if schema is None else schema)
    except ValueError as error:
        raise ValueError(f"the function {name!r}: {error}") from error


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
    """What one call may use up."""

    timeout_s: float
    output_bytes: int
    """Bytes of the observation; the middle of a longer one is cut and marked."""


class Tool(Protocol):
    """Something the policy can call."""

    @property
    def spec(self) -> ToolSpec:
        """Its schema."""
        ...

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        """What the call gave back. `arguments` have passed the schema."""
        ...


class Toolbox:
    """The tools of a job, in the order they are offered."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The schemas, in order."""
        return tuple(tool.spec for tool in self._tools.values())

    def ends_episode(self, call: ToolCall) -> bool:
        """Whether the call hands the work in."""
        return self._tools[call.name].spec.ends_episode

    async def run(self, call: ToolCall, sandbox: Sandbox, context: ToolContext) -> Observation:
        """Run a call whose status is ok; the observation says how long it took."""
        tool = self._tools.get(call.name)
        if tool is None:
            raise InternalError(f"a call of the unknown tool {call.name} reached the toolbox")
        began = time.monotonic()
        observation = await tool.run(call.arguments, sandbox, context)
        return replace(observation, duration_s=time.monotonic() - began)


def text_argument(arguments: Mapping[str, object], name: str) -> str | None:
    """A string argument; none when it was not given."""
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise InternalError(f"the argument {name} passed the schema as {type(value).__name__}")
    return value


def readable(output: bytes) -> str:
    """Output as text: bytes that are no UTF-8 become U+FFFD, a NUL is written out."""
    return output.decode("utf-8", errors="replace").replace("\0", r"\x00")


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8: the beginning and the end, and between them how much is gone.

    Where there is no room for a marker, just the beginning is left.
    """
    data = text.encode()
    if len(data) <= limit:
        return text
    room = limit - len(_marker(len(data)))
    if room <= 0:
        return data[:limit].decode(errors="ignore")
    # A cut may fall into a character; what is left of it is dropped.
    head = data[: (room + 1) // 2].decode(errors="ignore")
    tail = data[len(data) - room // 2 :].decode(errors="ignore")
    return head + _marker(len(data) - len(head.encode()) - len(tail.encode())) + tail


def _marker(omitted: int) -> str:
    return f"\n[... {omitted} bytes omitted ...]\n"
