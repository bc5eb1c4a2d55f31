"""Agent programs: how an episode goes from its task to a stop reason, turn by turn.

A program is an async function of an `AgentContext`. The built-in one is `loop`; `AGENTS` names
others. A program decides when turns are taken and what runs between them; it never writes for the
policy.
"""

from __future__ import annotations

import inspect
from typing import Protocol

from swe_rollout.agent.context import AgentContext
from swe_rollout.errors import ExtensionFailedError, MisuseError, boundary
from swe_rollout.extension import ExtensionPoint
from swe_rollout.text.user_code import user_code
from swe_rollout.types.deadline import CLOCK
from swe_rollout.types.episode import StopReason

_AGENT = "the agent program"


class Agent(Protocol):
    """Takes the turns of one episode. It is stateless: one instance serves all episodes."""

    async def __call__(self, context: AgentContext, /) -> StopReason:
        """Take turns until the episode ends, and return why."""
        ...


async def loop(context: AgentContext) -> StopReason:
    """Take turns until one of them or a limit ends the episode."""
    await context.begin()
    return await context.finish()


def _is_agent(value: object) -> bool:
    call = getattr(value, "__call__", None)  # noqa: B004 - a class may define it as async
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


AGENTS: ExtensionPoint[Agent] = ExtensionPoint(
    "agent",
    group="swe_rollout.agents",
    accepts=_is_agent,
    expected="an async function of an AgentContext that returns a StopReason",
    builtin={
        "loop": "swe_rollout.agent.program:loop",
        "react": "swe_rollout.agent.presets.loops:React",
        "tool": "swe_rollout.agent.presets.loops:Tool",
        "coding": "swe_rollout.agent.presets.coding:Coding",
        "general": "swe_rollout.agent.presets.loops:General",
        "swe": "swe_rollout.agent.presets.loops:Swe",
        "harness": "swe_rollout.gateway.harness:Harness",
    },
    one_argument=True,
)


async def run_agent(program: Agent, context: AgentContext) -> StopReason:
    """Run an agent program to the end of its episode.

    A failure of the engine or sandbox inside a turn is raised even if the program caught it. A
    program that runs long after the episode's time is up is cancelled. Resources that tools hold
    for the episode are released however it ends.
    """
    stop: object = None
    token = CLOCK.set(context.clock)
    try:
        async with context.time_limit() as clock, boundary(ExtensionFailedError, _AGENT):
            stop = await program(context)
    except TimeoutError:
        if not clock.expired():
            raise
        stop = StopReason.TIME_LIMIT
    except MisuseError as error:
        error.show(user_code(error, is_blamed=True))
        raise
    finally:
        CLOCK.reset(token)
        context.close()
        await context.tool_state.aclose()
    if context.failure is not None:
        raise context.failure
    return _checked(program, stop)


def _checked(program: Agent, stop: object) -> StopReason:
    if not isinstance(stop, StopReason):
        returned = "None" if stop is None else f"a {type(stop).__name__}"
        raise ExtensionFailedError(
            f"the agent program returned {returned} instead of a StopReason",
            fix="end it with `return await context.finish()`, or return what context.turn() "
            "returned",
            by=program,
        )
    return stop
