"""The `submit` tool: the policy hands in its work."""

from __future__ import annotations

from collections.abc import Mapping

from swe_rollout.agent.tools.base import Tool, ToolContext, ToolSpec
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation


class Submit(Tool):
    """Ends the episode; the changes in the repository are what is graded."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "submit",
            "Hand in your work: the changes in the repository as they are now. Ends the session.",
            ends_episode=True,
        )

    async def run(
        self,
        arguments: Mapping[str, object],  # noqa: ARG002 - it takes none
        sandbox: Sandbox,  # noqa: ARG002 - nothing is run
        context: ToolContext,  # noqa: ARG002 - nothing is used up
    ) -> Observation:
        return Observation("The work is handed in.")
