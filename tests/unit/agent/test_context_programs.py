"""Whatever a program does with the steps of an agent, its branches hold.

Programs are drawn as sequences of steps over several agents of one episode, right and wrong ones;
a refused step changes nothing, and what it sampled before stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from hypothesis import event, given, settings
from hypothesis import strategies as st

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.first_prompt import PromptTooLongError
from swe_rollout.errors import MisuseError
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import ToolCall
from unit.agent.agent_parts import (
    BROKEN,
    END,
    SUBMIT,
    UNCLOSED,
    Aborting,
    Echo,
    Player,
    assert_hold,
    bash,
    encode,
    loop_of,
)


class Op(Enum):
    TURN = "turn"
    GENERATE = "generate"
    RUN_ALL = "run all"
    RUN_ONE = "run one"
    ANSWER = "answer"
    SAY = "say"
    SPAWN = "spawn"
    RESTART = "restart"
    COMPACT = "compact"
    BEGIN = "begin"
    TURNS_TOGETHER = "turns of all agents at once"


@dataclass(frozen=True)
class Step:
    op: Op
    agent: int
    text: str


@dataclass
class Driver:
    """Does steps, and counts those that were refused."""

    agents: list[AgentContext]
    refused: int = 0
    done: list[Op] = field(default_factory=list)

    async def do(self, step: Step) -> None:
        agent = self.agents[step.agent % len(self.agents)]
        before = [len(each.branches()[-1].token_ids) for each in self.agents[:1]]
        try:
            await self._do(step, agent)
            self.done.append(step.op)
        except MisuseError:
            self.refused += 1
            assert agent.failure is None, "a refused step must not end the episode"
            if step.op not in (Op.TURNS_TOGETHER, Op.COMPACT):
                assert [len(each.branches()[-1].token_ids) for each in self.agents[:1]] == before

    async def _do(self, step: Step, agent: AgentContext) -> None:
        steps: dict[Op, Callable[[], Awaitable[object]]] = {
            Op.TURN: agent.turn,
            Op.GENERATE: agent.generate,
            Op.RUN_ALL: agent.run,
            Op.RUN_ONE: lambda: agent.run(_next_call(agent)),
            Op.ANSWER: lambda: _at_once(partial(_answer, agent, step.text)),
            Op.SAY: lambda: _at_once(partial(agent.say, step.text)),
            Op.SPAWN: lambda: self._spawn(agent, step.text),
            Op.RESTART: lambda: agent.restart(step.text),
            Op.COMPACT: agent.compact,
            Op.BEGIN: agent.begin,
            Op.TURNS_TOGETHER: self._turns_together,
        }
        await steps[step.op]()

    async def _spawn(self, agent: AgentContext, text: str) -> None:
        self.agents.append(await agent.spawn(text, turns=3))

    async def _turns_together(self) -> None:
        ready = [each for each in self.agents if each.stop is None]
        results = await asyncio.gather(*(each.turn() for each in ready), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, MisuseError):
                raise result


def _next_call(agent: AgentContext) -> Sequence[ToolCall]:
    if not agent.turns:
        return ()
    last = agent.turns[-1]
    return last.tool_calls[len(last.observations) :][:1]


def _answer(agent: AgentContext, text: str) -> None:
    for call in _next_call(agent):
        agent.answer(call, text)


async def _at_once(step: Callable[[], None]) -> None:
    step()


texts = st.sampled_from(
    ["go on", "<|im_end|>\n<|im_start|>assistant\n", "é\ud800", "x" * 5000, " "]
)
# Turns are what the other steps stand between.
ops = st.sampled_from(Op) | st.sampled_from([Op.TURN, Op.GENERATE, Op.RUN_ALL, Op.SAY])
steps = st.builds(Step, ops, st.integers(0, 3), texts)
turns = st.lists(
    st.sampled_from(
        [
            bash("ls"),
            bash("a") + bash("b"),
            "All is well.",
            SUBMIT + bash("c"),
            BROKEN,
            UNCLOSED,
            "",
            "<think>hm",
            "<think>a</think>b",
        ]
    ),
    min_size=4,
    max_size=12,
)
limits = st.builds(
    Limits,
    turns=st.sampled_from([40, 8, 3]),
    context_tokens=st.sampled_from([30000, 3000, 1500, 900]),
    max_new_tokens=st.sampled_from([4096, 4096, 40, 5]),
    cut_turns=st.sampled_from(CutTurns),
    repeated_turns=st.none() | st.just(3),
    compact_at=st.sampled_from([None, 0.05, 0.5, 0.8]),
)


@settings(deadline=None, max_examples=150)
@given(
    steps=st.lists(steps, min_size=6, max_size=30), texts=turns, limits=limits, aborts=st.booleans()
)
def test_branches_hold_for_every_program(
    steps: list[Step], texts: list[str], limits: Limits, *, aborts: bool
) -> None:
    kind = Aborting if aborts else Player
    engine = kind([encode(text + END) for text in texts])
    if isinstance(engine, Aborting):
        engine.step = 16

    async def program(context: AgentContext) -> StopReason:
        await context.begin()
        driver = Driver([context])
        for step in steps:
            await driver.do(step)
        return StopReason.FINISHED

    episode = loop_of(engine, program=program, limits=limits, sandbox=Echo())
    try:
        asyncio.run(episode.run())
    except PromptTooLongError:
        assert episode.context.branches()[0].segments[0].end + 1 >= limits.context_tokens
        assert not episode.context.episode_turns
    assert len(episode.context.episode_turns) <= limits.turns
    for branch in episode.context.branches():
        first = branch.segments[0].end
        assert len(branch.token_ids) <= max(first, limits.context_tokens)
    event(f"branches: {len(episode.context.branches())}")
    event(f"turns: {len(episode.context.episode_turns)}")
    assert_hold(episode.context, engine)
