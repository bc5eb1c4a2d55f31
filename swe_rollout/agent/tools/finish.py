"""Tools that run nothing: `finish` ends the episode with an answer, `think` keeps a thought."""

from __future__ import annotations

from collections.abc import Mapping

from swe_rollout.agent.tools.base import Parameter, Tool, ToolContext, ToolSpec
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation


class Finish(Tool):
    """Ends the episode. The answer is in the record, as the arguments of the call."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "finish",
            "Finish: give your answer and hand in your work as it is now. Ends the session.",
            (
                Parameter("answer", "The answer, or what was done.", required=True),
                Parameter("reasoning", "How you came to it."),
                Parameter("status", "How far you came.", choices=("success", "partial", "failed")),
            ),
            ends_episode=True,
        )

    async def run(
        self,
        arguments: Mapping[str, object],  # noqa: ARG002 - the record has them
        sandbox: Sandbox,  # noqa: ARG002 - nothing is run
        context: ToolContext,  # noqa: ARG002 - nothing is used up
    ) -> Observation:
        return Observation("The work is handed in.")


class Think(Tool):
    """A place for a thought; nothing happens."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "think",
            "Write down a thought, such as a plan or what you conclude. Nothing is run or changed.",
            (Parameter("thought", "The thought.", required=True),),
        )

    async def run(
        self,
        arguments: Mapping[str, object],  # noqa: ARG002 - the record has them
        sandbox: Sandbox,  # noqa: ARG002 - nothing is run
        context: ToolContext,  # noqa: ARG002 - nothing is used up
    ) -> Observation:
        return Observation("The thought is noted.")
