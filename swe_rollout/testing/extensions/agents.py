"""The contract of agent programs as tests: subclass `AgentContract` and provide a program.

    class TestPlanner(AgentContract):
        @pytest.fixture
        def agent(self):
            return my_agents.planner

Needs pytest with pytest-asyncio in auto mode. The policy is scripted; the sandbox is in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import Agent, run_agent
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import EngineError, SandboxError
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import FinishReason, Generation

_END = "<|im_end|>"


def call(name: str, **arguments: object) -> str:
    """Return the text of a turn that calls a tool."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


LOOK = call("bash", command="ls")
EDIT = call("str_replace_editor", command="create", path="a.py", file_text="x = 1\n")
SUBMIT = call("submit")
BROKEN = '<tool_call>\n{"name": "bash"\n</tool_call>'
POLICIES: dict[str, tuple[str, ...]] = {
    "submits": (LOOK, EDIT, SUBMIT),
    "says nothing to do": ("All is well.",),
    "never ends": (LOOK,),
    "never parses": (BROKEN,),
    "submits at once": (SUBMIT,),
}
"""The texts of scripted policies, turn by turn; the last one repeats if the agent goes on."""


@cache
def _renderer() -> Renderer:
    return Renderer.load(str(tokenizer_path()))


@dataclass
class ScriptedTurns(TokenEngine):
    """An engine that samples the given turns."""

    turns: Sequence[str]
    fails_at: int | None = None
    """The turn in which the engine fails."""
    never_responds: bool = False
    requests: list[GenerateRequest] = field(default_factory=list)

    async def info(self) -> EngineInfo:
        return EngineInfo("scripted", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        if request.turn == self.fails_at:
            raise EngineError("the engine is lost")
        if self.never_responds:
            await asyncio.Event().wait()
        text = self.turns[min(request.turn, len(self.turns) - 1)] + _END
        tokenizer = _renderer().tokenizer.backend_tokenizer
        ids = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
        return Generation(ids, (-0.5,) * len(ids), FinishReason.STOP, len(request.input_ids))


class AgentContract:
    """The contract of an agent program. Override the fixture `agent`."""

    @pytest.fixture
    def agent(self) -> Agent:
        """The program."""
        raise NotImplementedError("override the fixture `agent`")

    def context(self, engine: ScriptedTurns, sandbox: MemorySandbox | None = None) -> AgentContext:
        """Return the context of an episode for a program."""
        tools = toolbox(["bash", "str_replace_editor", "submit"])
        limits = Limits(turns=6, format_errors=3)
        parts = AgentParts(engine, _renderer(), tools, Prompts(), limits)
        return AgentContext(
            parts,
            instance=Instance(instance_id="task", problem_statement="It fails.", image="image"),
            episode=EpisodeId("contract", "task", 0),
            sampling=Sampling(),
            sandbox=sandbox or MemorySandbox({}),
            on_turn=lambda _: None,
        )

    @pytest.mark.parametrize("policy", POLICIES)
    async def test_every_policy_comes_to_a_stop_on_exact_tokens(
        self, agent: Agent, policy: str
    ) -> None:
        engine = ScriptedTurns(POLICIES[policy])
        context = self.context(engine)
        assert isinstance(await asyncio.wait_for(run_agent(agent, context), 60), StopReason)
        branches, turns = context.branches(), context.episode_turns
        assert len(turns) <= context.parts.limits.turns
        sampled = sum(branch.sampled for branch in branches)
        assert sampled == sum(turn.completion_tokens for turn in turns)
        for request in engine.requests:
            ids = tuple(request.input_ids.tolist())
            assert branches[request.branch].token_ids[: len(ids)] == ids

    async def test_episodes_do_not_know_of_each_other(self, agent: Agent) -> None:
        async def played() -> tuple[StopReason, list[str]]:
            context = self.context(ScriptedTurns(POLICIES["submits"]))
            return await run_agent(agent, context), [turn.text for turn in context.turns]

        first = await played()
        assert await asyncio.gather(*(played() for _ in range(4))) == [first] * 4

    async def test_a_lost_engine_or_sandbox_is_a_failure(self, agent: Agent) -> None:
        engine = ScriptedTurns(POLICIES["submits"], fails_at=0)
        with pytest.raises(EngineError):
            await run_agent(agent, self.context(engine))
        engine = ScriptedTurns(POLICIES["submits"])
        with pytest.raises(SandboxError):
            await run_agent(agent, self.context(engine, MemorySandbox({}, lost=True)))

    async def test_an_episode_can_be_cancelled(self, agent: Agent) -> None:
        engine = ScriptedTurns(POLICIES["submits"], never_responds=True)
        task = asyncio.create_task(run_agent(agent, self.context(engine)))
        await asyncio.sleep(0.05)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done, "the agent goes on after it was cancelled"
        assert task.cancelled()
