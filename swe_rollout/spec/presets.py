"""Presets of the built-in agents: what a job gets that names one and leaves the rest open.

They are values of the spec, so that a job says in its own file, store and record what was rendered.
The programs are in `swe_rollout.agent.presets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from swe_rollout.spec.tool_format import TextFormat

_ALONE = """\
You work alone in a sandbox that holds a copy of a repository, and nobody answers questions: where \
something is unclear, decide from the code and go on."""

REACT_SYSTEM: Final = f"""\
You solve problems in software step by step. {_ALONE}

Each of your turns is a thought, then one action:

Thought: what you know by now, and what you do next and why
Action: the call of a tool

Then stop. What the tool says comes back as an observation; never write one yourself. Once all is \
done, write this instead of an action:

Final Answer: what you found and what you changed"""

TOOL_SYSTEM: Final = f"""\
You answer requests about software by calling tools. {_ALONE}

Call what you need; calls that do not depend on each other can stand in one turn. Take facts from \
what the tools return, not from memory. A turn without a call is your answer and ends the work."""

CODING_SYSTEM: Final = f"""\
You are a software engineer who changes code with care. {_ALONE}

You work in phases: understand the task, explore the code, plan, implement, test, refine. Between \
turns you are told which phase you are in and what has happened so far. Write the line \
`Phase: NAME` when you go on to another one."""

GENERAL_SYSTEM: Final = f"""\
You work on a task with the tools you are given. {_ALONE}

Before each call, say in a sentence or two what you want to find out or change. Call the tool that \
hands your work in once the task is done."""

SWE_SYSTEM: Final = f"""\
You are a programmer who fixes issues in a repository. {_ALONE}

In each turn, reason about what you know and what comes next; then make one call of a tool. The \
call ends your turn. A turn without a call ends your work, so keep calling tools until the issue \
is fixed, and then call the tool that hands it in."""

SWE_INSTANCE: Final = """\
This issue was filed for the repository in {workdir}:

<issue>
{problem_statement}
</issue>

Change the code of the repository so that the issue is resolved. Tests for it exist and are run \
later; leave the test files as they are. There is no network.

- Read the structure of the repository and the code that the issue is about.
- Write a script that shows the problem, and run it.
- Make the smallest change that removes the cause.
- Run your script again, then the tests near your change.
- Think of inputs at the edges, and see that they work too.
- View a file in parts of some fifty lines, and look at a place again before you edit it twice.
- Remove your own scripts, then hand the work in."""

_TOOLS: Final = ("bash", "str_replace_editor", "submit")


@dataclass(frozen=True, slots=True)
class AgentPreset:
    """The defaults of an agent's fields; what a job sets itself wins."""

    system_prompt: str | None = None
    """None: the prompt of every agent without one of its own."""
    instance_prompt: str | None = None
    tool_format: str = "auto"
    tools: tuple[str, ...] = _TOOLS


PRESETS: Final[Mapping[str, AgentPreset]] = {
    "loop": AgentPreset(),
    "react": AgentPreset(REACT_SYSTEM, tool_format=TextFormat.THOUGHT_ACTION.value),
    "tool": AgentPreset(TOOL_SYSTEM, tool_format=TextFormat.TOOL_CALL_LINE.value),
    "coding": AgentPreset(CODING_SYSTEM),
    "general": AgentPreset(GENERAL_SYSTEM),
    "swe": AgentPreset(SWE_SYSTEM, SWE_INSTANCE, tool_format=TextFormat.FUNCTION_XML.value),
}


def preset_of(use: object) -> AgentPreset:
    """Return the defaults of an agent; those of `loop` for one that is not built in."""
    return PRESETS.get(use, PRESETS["loop"]) if isinstance(use, str) else PRESETS["loop"]
