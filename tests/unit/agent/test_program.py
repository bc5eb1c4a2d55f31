"""Agent programs: the built-in one keeps the contract, and what others may and may not do."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from typing import ClassVar

import pytest

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.program import AGENTS, Agent, loop
from swe_rollout.errors import Boundary, EngineError, ExtensionFailedError
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.limits import Limits
from swe_rollout.testing.extensions.agents import AgentContract
from swe_rollout.types.deadline import CLOCK, Deadline
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import SUBMIT, Echo, bash, gone, loop_of, player
from waits import PATIENCE_S


class TestLoop(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return AGENTS.load("loop")


@AGENTS.register
async def few_turns(context: AgentContext, *, turns: int) -> StopReason:
    await context.begin()
    while len(context.turns) < turns:
        if (stop := await context.turn()) is not None:
            return stop
        await context.sandbox.exec("git diff --stat")
    return StopReason.FINISHED


async def test_a_program_decides_when_to_end_and_what_runs_between_turns() -> None:
    sandbox = Echo()
    played = loop_of(
        player(bash("ls")), sandbox=sandbox, program=AGENTS.load("few_turns", {"turns": 2})
    )

    assert await played.run() is StopReason.FINISHED
    assert sandbox.commands == ["ls", "git diff --stat"] * 2
    assert len(played.turns) == 2


async def test_whatever_a_program_waits_for_finds_the_clock_of_its_episode() -> None:
    found: list[Deadline | None] = []

    async def waits(context: AgentContext) -> StopReason:
        await context.begin()
        found.append(CLOCK.get())
        found.append(await asyncio.create_task(clock_here()))
        assert context.clock is found[0]
        return StopReason.FINISHED

    async def clock_here() -> Deadline | None:
        return CLOCK.get()

    assert await loop_of(player(), program=waits).run() is StopReason.FINISHED
    assert found[0] is found[1] is not None
    assert CLOCK.get() is None


class Held:
    """A tool's state that must be given back."""

    given_back: ClassVar[list[str]] = []

    async def aclose(self) -> None:
        self.given_back.append("held")


@pytest.mark.parametrize("fails", [False, True])
async def test_what_tools_hold_is_given_back_however_the_episode_ends(fails: bool) -> None:  # noqa: FBT001 - parametrized
    async def holds(context: AgentContext) -> StopReason:
        context.tool_state.of(Held)
        if fails:
            raise EngineError("gone")
        return StopReason.FINISHED

    Held.given_back.clear()
    played = loop_of(player(SUBMIT), program=holds)
    with pytest.raises(EngineError) if fails else nullcontext():
        await played.run()
    assert Held.given_back == ["held"]


def test_a_program_that_lacks_a_parameter_or_is_none_is_refused() -> None:
    with pytest.raises(
        ExtensionError, match="few_turns can't be called with one argument: missing"
    ):
        AGENTS.load("few_turns")
    with pytest.raises(ExtensionError, match="json:dumps"):
        AGENTS.load("json:dumps")
    assert AGENTS.load("loop") is loop


async def ignores_stops(context: AgentContext) -> StopReason:
    await context.begin()
    while True:
        await context.turn()


async def forgets_to_begin(context: AgentContext) -> StopReason:
    return await context.turn() or StopReason.FINISHED


async def returns_nothing(context: AgentContext) -> StopReason:
    await context.begin()
    return None  # type: ignore[return-value] # what it is about


@pytest.mark.parametrize(
    ("program", "fix"),
    [
        (ignores_stops, ""),
        (forgets_to_begin, "await context.begin(), then turn()"),
        (returns_nothing, "end it with `return await context.finish()`"),
    ],
)
async def test_a_program_that_breaks_the_rules_is_a_failure(program: Agent, fix: str) -> None:
    with pytest.raises(ExtensionFailedError, match=r"the agent.*test_program.py:\d+:") as caught:
        await loop_of(player(SUBMIT), program=program).run()
    assert "test_program.py" in caught.value.trace
    assert fix in caught.value.fix
    assert not caught.value.retryable


async def test_a_failure_in_a_turn_can_not_be_hidden() -> None:
    async def hides(context: AgentContext) -> StopReason:
        await context.begin()
        with suppress(EngineError):
            await context.turn()
        return StopReason.FINISHED

    with pytest.raises(EngineError, match="gone"):
        await loop_of(gone(), program=hides).run()


async def test_a_program_that_hangs_is_cancelled_after_the_episode_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("swe_rollout.agent.context.GRACE_S", 0.05)
    ended = asyncio.Event()

    async def hangs(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return StopReason.FINISHED

    played = loop_of(player(bash("ls")), program=hangs, limits=Limits(episode_seconds=2))
    assert await asyncio.wait_for(played.run(), PATIENCE_S) is StopReason.TIME_LIMIT
    assert ended.is_set()
    assert len(played.turns) == 1


async def test_a_timeout_of_the_program_s_own_is_not_the_episode_s() -> None:
    async def fails(context: AgentContext) -> StopReason:
        await context.begin()
        raise TimeoutError("of its own")

    with pytest.raises(ExtensionFailedError, match="of its own"):
        await loop_of(player(SUBMIT), program=fails).run()


async def test_an_error_of_the_program_is_its_users_and_one_that_it_passes_on_is_not() -> None:
    """Issue 16, point 4: who owns a failure."""

    async def divides(context: AgentContext) -> StopReason:
        await context.begin()
        return StopReason.FINISHED if 1 / len(context.turns) else StopReason.SUBMITTED

    with pytest.raises(ExtensionFailedError, match="ZeroDivisionError") as caught:
        await loop_of(player(SUBMIT), program=divides).run()
    assert caught.value.boundary is Boundary.EXTENSION

    async def refused(context: AgentContext) -> StopReason:
        del context
        raise EngineError("gone")

    with pytest.raises(EngineError, match="gone"):
        await loop_of(player(SUBMIT), program=refused).run()
