"""Tools that ask a further agent: `agent` works on a part of the task, `architect` only thinks.

Each opens a branch of the episode: what it samples is recorded and trained on there, and what it
says at its end is the result of the call.
"""

from __future__ import annotations

from collections.abc import Mapping

from swe_rollout.agent.tools.base import (
    Parameter,
    Tool,
    ToolContext,
    ToolError,
    ToolSpec,
    cut_middle,
    text_argument,
)
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

_PLAN = """\
You are asked as a software architect: you run nothing and change nothing. Think the request \
through, and answer with a plan: what to change, where and in which order, and what could go wrong.

{request}"""


class SubAgent(Tool):
    """A further agent in the same sandbox, with the same tools but those that end the episode."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "agent",
            "Ask another agent to do a part of the work in the same sandbox, such as a search that "
            "would fill your own context. It sees nothing but your prompt, works on its own, and "
            "returns its final answer.",
            (Parameter("prompt", "What to do and what to report, in full.", required=True),),
        )

    async def run(
        self,
        arguments: Mapping[str, object],
        sandbox: Sandbox,  # noqa: ARG002 - the agent's own tools use it
        context: ToolContext,
    ) -> Observation:
        return await _asked(context, text_argument(arguments, "prompt") or "", has_tools=True)


class Architect(Tool):
    """A further call of the model without tools, which answers with a plan."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "architect",
            "Ask a software architect for a plan. Nothing is run or changed.",
            (
                Parameter("prompt", "The request, or the question.", required=True),
                Parameter("context", "What the architect should know, such as code."),
            ),
        )

    async def run(
        self,
        arguments: Mapping[str, object],
        sandbox: Sandbox,  # noqa: ARG002 - nothing is run
        context: ToolContext,
    ) -> Observation:
        parts = (text_argument(arguments, "prompt"), text_argument(arguments, "context"))
        request = _PLAN.replace("{request}", "\n\n".join(filter(None, parts)))
        return await _asked(context, request, has_tools=False)


async def _asked(context: ToolContext, prompt: str, *, has_tools: bool) -> Observation:
    if context.delegate is None:
        raise ToolError("there is no other agent to ask here")
    if not prompt.strip():
        raise ToolError("the prompt is empty")
    answer = await context.delegate(prompt, has_tools=has_tools)
    return Observation(cut_middle(answer, context.output_bytes))
