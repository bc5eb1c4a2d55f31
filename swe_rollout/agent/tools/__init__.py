"""The tools an agent may call; a built-in one is a file here and a line in `names`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from swe_rollout.agent.tools.base import (
    ActsOutside,
    Configurable,
    RunsProgram,
    Tool,
    Toolbox,
    ToolContext,
    Toolset,
    ToolSpec,
    run_in_time,
)
from swe_rollout.agent.tools.names import OTHER_NAMES, SOURCE_NAMES, TOOL_NAMES, TOOLSET_NAMES
from swe_rollout.extension import ExtensionError, ExtensionPoint
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.spec.model import Use
from swe_rollout.types.turn import Observation

__all__ = ["TOOLS", "Offered", "load_tool", "toolbox"]


@dataclass(frozen=True, slots=True)
class Offered(Tool):
    """A tool as one job offers it: with another name or description, or with its own bounds."""

    tool: Tool
    name: str | None = None
    description: str | None = None
    timeout_s: float | None = None
    output_bytes: int | None = None

    @classmethod
    def as_in(cls, use: ToolUse, tool: Tool) -> Tool:
        """Return the tool as `use` offers it; the tool itself if nothing changes."""
        changes = (use.name, use.description, use.timeout_seconds, use.output_bytes)
        return tool if changes == (None,) * 4 else cls(tool, *changes)

    @property
    def spec(self) -> ToolSpec:
        own = self.tool.spec
        return replace(
            own,
            name=self.name or own.name,
            description=self.description or own.description,
            output_bytes=self.output_bytes or own.output_bytes,
        )

    @property
    def keeps_time(self) -> bool:
        return True

    @property
    def acts_outside(self) -> bool:
        return isinstance(self.tool, ActsOutside) and self.tool.acts_outside

    @property
    def try_start(self) -> Callable[[Sandbox], Awaitable[None]] | None:
        return self.tool.try_start if isinstance(self.tool, RunsProgram) else None

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        if self.timeout_s is not None:
            context = replace(context, timeout_s=min(self.timeout_s, context.remaining_s))
        return await run_in_time(self.tool, arguments, sandbox, context)


def _is_tool(value: object) -> bool:
    if isinstance(value, Toolset):
        return True
    has_run = callable(getattr(value, "run", None))
    return has_run and isinstance(getattr(value, "spec", None), ToolSpec)


TOOLS: ExtensionPoint[Tool | Toolset] = ExtensionPoint(
    "tool",
    group="swe_rollout.tools",
    accepts=_is_tool,
    expected="a function with types and a docstring, an object with `spec` and `run`, or a Toolset",
    builtin={**TOOL_NAMES, **TOOLSET_NAMES, **SOURCE_NAMES},
    aliases=OTHER_NAMES,
    from_function="swe_rollout.agent.tools.function:of_function",
)


def toolbox(uses: Iterable[Use | str]) -> Toolbox:
    """Load tools in this order. A bare name has no parameters; a toolset adds all of its tools.

    Raises ExtensionError for a tool that can't be loaded, for missing configuration, and for two
    tools that the policy could not tell apart.
    """
    tools = [tool for use in uses for tool in _load(use)]
    names = [tool.spec.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ExtensionError(
                f"there are two tools named {name}",
                fix="leave one out, or rename it: {use: …, name: …}",
            )
    return Toolbox(tools)


def load_tool(use: Use | str) -> Tool:
    """Load one tool as `use` offers it. Raises ExtensionError also for a toolset of several."""
    match _load(use):
        case (tool,):
            return tool
        case tools:
            raise ExtensionError(
                f"{use if isinstance(use, str) else use.use} is a toolset of {len(tools)} tools",
                fix="name one of its tools",
            )


def _load(use: Use | str, within: tuple[str, ...] = ()) -> tuple[Tool, ...]:
    if isinstance(use, str):
        use = ToolUse(use=use)
    made = TOOLS.load(use.use, use.with_)
    if not isinstance(made, Toolset):
        _require_configuration(use.use, made)
        return (_offered(use, made),)
    _require_set(use, within)
    members = [
        _load(each, (*within, use.use)) if isinstance(each, (Use, str)) else (each,)
        for each in made.tools
    ]
    return tuple(_offered(use, tool) for tools in members for tool in tools)


def _offered(use: Use, tool: Tool) -> Tool:
    return Offered.as_in(use, tool) if isinstance(use, ToolUse) else tool


def _require_set(use: Use, within: tuple[str, ...]) -> None:
    if use.use in within:
        raise ExtensionError(
            f"the toolset {use.use} holds itself", fix="name the tools that it is to have"
        )
    if isinstance(use, ToolUse) and (use.name or use.description):
        raise ExtensionError(
            f"the toolset {use.use} can't have one name or description for all of its tools",
            fix="name its tools one by one, as docs/reference/tools.md lists them",
        )


def _require_configuration(use: str, tool: Tool) -> None:
    if isinstance(tool, Configurable) and tool.missing:
        lacks = tool.missing[0]
        raise ExtensionError(
            f"the tool {use} needs the parameter {lacks}",
            fix=f"{{use: {use}, with: {{{lacks}: …}}}}",
        )
