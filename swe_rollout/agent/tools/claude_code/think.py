"""The `Think` tool: a place for the policy to reason; nothing is run."""

from __future__ import annotations

from swe_rollout.agent.tools.base import Parameter, ToolSpec
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool


class Think(ClaudeCodeTool):
    """Takes a thought; it stays in the turn that holds it."""

    def __init__(self, name: str = "Think") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                "Write down a thought, such as a plan or what a result means. Nothing is run.",
                (Parameter("thought", "The thought.", required=True),),
            )
        )

    async def call(self, call: Call) -> str:
        call.required("thought")
        return "noted"
