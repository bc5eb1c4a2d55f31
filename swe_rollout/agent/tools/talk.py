"""Tools that run nothing in the sandbox: end the episode, note a thought, or start a sub-agent.

`agent` works on a part of the task, `architect` only thinks. Each opens a branch of the episode, in
which its tokens are recorded and trained on; its last message is the call's result.
"""

from __future__ import annotations

from typing import Final

from swe_rollout.agent.tools.base import Parameter, ToolError
from swe_rollout.agent.tools.face import Call, Face

_PLAN: Final = """\
You are asked as a software architect: you run nothing and change nothing. Think the request \
through, and answer with a plan: what to change, where and in which order, and what could go wrong.

{request}"""
_HAND_IN: Final = (
    "Hand in your work: the changes in the repository as they are now. Ends the session."
)


def _says(
    text: str, name: str, description: str, *parameters: Parameter, ends_episode: bool = False
) -> Face:
    """Return a tool whose result is always the same; the record keeps the arguments."""

    async def act(call: Call) -> str:  # noqa: ARG001 - the record has it
        return text

    return Face.of(act, name, description, *parameters, ends_episode=ends_episode)


SUBMIT: Final = _says("The work is handed in.", "submit", _HAND_IN, ends_episode=True)
R2E_SUBMIT: Final = SUBMIT.named("r2e_submit")
FINISH: Final = _says(
    "The work is handed in.",
    "finish",
    "Finish: give your answer and hand in your work as it is now. Ends the session.",
    Parameter("answer", "The answer, or what was done.", required=True),
    Parameter("reasoning", "How you came to it."),
    Parameter("status", "How far you came.", choices=("success", "partial", "failed")),
    ends_episode=True,
)
R2E_FINISH: Final = _says(
    "<<<Finished>>>",
    "r2e_finish",
    _HAND_IN,
    Parameter("command", "What to do.", required=True, choices=("submit",)),
    Parameter("result", "What you have done, in your own words."),
    ends_episode=True,
)
_THOUGHT: Final = Parameter("thought", "The thought.", required=True)
THINK: Final = _says(
    "The thought is noted.",
    "think",
    "Write down a thought, such as a plan or what you conclude. Nothing is run or changed.",
    _THOUGHT,
)
CLAUDE_THINK: Final = _says(
    "noted",
    "Think",
    "Write down a thought, such as a plan or what a result means. Nothing is run.",
    _THOUGHT,
)


async def _agent(call: Call) -> str:
    return await _asked(call, call.text("prompt") or "", has_tools=True)


async def _architect(call: Call) -> str:
    parts = (call.text("prompt"), call.text("context"))
    request = _PLAN.replace("{request}", "\n\n".join(filter(None, parts)))
    return await _asked(call, request, has_tools=False)


async def _asked(call: Call, prompt: str, *, has_tools: bool) -> str:
    if call.context.delegate is None:
        raise ToolError("there is no other agent to ask here")
    if not prompt.strip():
        raise ToolError("the prompt is empty")
    return await call.context.delegate(prompt, has_tools=has_tools)


SUB_AGENT: Final = Face.of(
    _agent,
    "agent",
    "Ask another agent to do a part of the work in the same sandbox, such as a search that "
    "would fill your own context. It sees nothing but your prompt, works on its own, and "
    "returns its final answer.",
    Parameter("prompt", "What to do and what to report, in full.", required=True),
)
ARCHITECT: Final = Face.of(
    _architect,
    "architect",
    "Ask a software architect for a plan. Nothing is run or changed.",
    Parameter("prompt", "The request, or the question.", required=True),
    Parameter("context", "What the architect should know, such as code."),
)
