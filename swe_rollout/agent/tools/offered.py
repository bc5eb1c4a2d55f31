"""A tool as one job offers it: under another name or description, with bounds of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swe_rollout.agent.tools.base import ActsOutside, Tool, ToolContext, ToolSpec
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.types.turn import Observation


@dataclass(frozen=True, slots=True)
class Offered(Tool):
    """A tool with what a job changes about it; see `ToolUse`."""

    tool: Tool
    name: str | None = None
    description: str | None = None
    timeout_s: float | None = None
    output_bytes: int | None = None

    @classmethod
    def as_in(cls, use: ToolUse, tool: Tool) -> Tool:
        """Return the tool as `use` offers it; itself where nothing is changed."""
        changes = (use.name, use.description, use.timeout_seconds, use.output_bytes)
        return tool if changes == (None,) * 4 else cls(tool, *changes)

    @property
    def spec(self) -> ToolSpec:
        own = self.tool.spec
        name, description = self.name or own.name, self.description or own.description
        return replace(own, name=name, description=description)

    @property
    def acts_outside(self) -> bool:
        return isinstance(self.tool, ActsOutside) and self.tool.acts_outside

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        if self.timeout_s is not None:
            context = replace(context, timeout_s=min(self.timeout_s, context.remaining_s))
        if self.output_bytes is not None:
            context = replace(context, output_bytes=self.output_bytes)
        return await self.tool.run(arguments, sandbox, context)
