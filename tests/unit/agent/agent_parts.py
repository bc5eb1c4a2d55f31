"""Shared by tests of agents: an engine that plays texts, a sandbox that echoes, an episode."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from rollout_dev.fileless import FilelessSandbox
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.encoding import Scaffold
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import Agent, loop, run_agent
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import EngineError, SandboxError
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import TokenLog
from swe_rollout.tokens.replay import Recording, ReplayRows
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import FinishReason, Generation, Turn, WeightSpan

RENDERER = Renderer.load(str(tokenizer_path()))
TOOLS = toolbox(["bash", "str_replace_editor", "submit"])
EPISODE = EpisodeId("job", "task", 0)
END = "<|im_end|>"


def encode(*texts: str) -> list[int]:
    return RENDERER._encoding.encode([Scaffold(text) for text in texts])


def bash(command: str) -> str:
    body = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"I look.\n<tool_call>\n{body}\n</tool_call>"


SUBMIT = '<tool_call>\n{"name": "submit", "arguments": {}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "bash"\n</tool_call>'
UNCLOSED = '<tool_call>\n{"name": "submit", "arguments": {}}'


@dataclass
class Player(TokenEngine):
    """Samples given turns one after the other; the last one again when more are asked for."""

    turns: Sequence[Sequence[int]]
    requests: list[GenerateRequest] = field(default_factory=list)
    before: Callable[[GenerateRequest], None] = lambda request: None  # noqa: ARG005
    pause_s: float = 0.0
    sampled: int = 0
    """Tokens sampled so far."""
    calling: int = 0
    """Calls in flight: an engine is promised one for each episode."""

    async def info(self) -> EngineInfo:
        return EngineInfo("player", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        self.before(request)
        self.calling += 1
        assert self.calling == 1
        try:
            await asyncio.sleep(self.pause_s)
        finally:
            self.calling -= 1
        generation = self.answer(request)
        self.sampled += len(generation.token_ids)
        return generation

    def answer(self, request: GenerateRequest) -> Generation:
        script = self.turns[min(request.turn, len(self.turns) - 1)]
        ids = tuple(script[: request.max_new_tokens])
        return Generation(
            ids,
            tuple(-0.25 - index for index in range(len(ids))),
            FinishReason.STOP if len(ids) == len(script) else FinishReason.LENGTH,
            prompt_tokens=len(request.input_ids),
            cached_tokens=7,
        )


def player(*texts: str, pause_s: float = 0.0) -> Player:
    return Player([encode(text + END) for text in texts], pause_s=pause_s)


def gone() -> Player:
    """An engine that fails in its first turn."""

    def fail(_: object) -> None:
        raise EngineError("the engine is gone")

    return Player([], before=fail)


class Aborting(Player):
    """Gives `step` tokens at a time under a new weight version each, aborted but for the last."""

    step = 3

    def answer(self, request: GenerateRequest) -> Generation:
        script = self.turns[min(request.turn, len(self.turns) - 1)]
        asked = [r for r in self.requests if r.turn == request.turn]
        done = len(request.input_ids) - len(asked[0].input_ids)
        left = script[done : done + request.max_new_tokens]
        ids = tuple(left[: self.step])
        last = done + len(ids) == len(script)
        return Generation(
            ids,
            (-0.5,) * len(ids),
            FinishReason.STOP if last else FinishReason.ABORT,
            prompt_tokens=len(request.input_ids),
            cached_tokens=done,
            weight_versions=(WeightSpan(str(len(asked)), 0, len(ids)),) if ids else (),
        )


class Telling(Aborting):
    """Aborts every twentieth token, and tells all that is asked for."""

    step = 20

    def answer(self, request: GenerateRequest) -> Generation:
        generation = super().answer(request)
        wanted, count = request.replay, len(generation.token_ids)
        assert wanted is not None
        rows = len(request.input_ids) + count - 1 - wanted.experts_from
        start = wanted.prompt_logprobs_from
        asked = () if start is None else tuple(range(start, len(request.input_ids)))
        told = ReplayRows(
            experts=np.full((rows, 2, 1), request.turn, dtype=np.int32),
            kept_ids=tuple((token, token + 1) for token in generation.token_ids),
            kept_logprobs=(-0.25,) * count,
            prompt_logprobs=tuple(-float(position) for position in asked),
        )
        return replace(generation, replay=told)


@dataclass
class Echo(FilelessSandbox):
    """Answers a command with its own text, or as told."""

    output: bytes | None = None
    commands: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    fails: str = ""
    """Commands that hold this text fail."""
    lost: bool = False
    pause_s: float = 0.0
    busy: asyncio.Event = field(default_factory=asyncio.Event)

    async def exec(
        self, command: str | Sequence[str], *, timeout_s: float = 120.0, **_: object
    ) -> ExecResult:
        assert isinstance(command, str)
        if self.lost:
            raise SandboxError("the sandbox is gone")
        self.commands.append(command)
        self.timeouts.append(timeout_s)
        self.busy.set()
        await asyncio.sleep(self.pause_s)
        data = command.encode() if self.output is None else self.output
        code = 1 if self.fails and self.fails in command else 0
        return ExecResult(code, data, b"", stdout_bytes=len(data))


class Branched(Protocol):
    """What has turns in branches."""

    @property
    def episode_turns(self) -> Sequence[Turn]: ...

    def branches(self) -> tuple[Branch, ...]: ...


def assert_hold(played: Branched, engine: Player) -> None:
    """Each sampled token stands in one branch, and each request was its branch so far."""
    branches, turns = played.branches(), played.episode_turns
    assert [branch.index for branch in branches] == list(range(len(branches)))
    assert [turn.index for turn in turns] == list(range(len(turns)))
    ids = [np.array(branch.token_ids, dtype="<i4") for branch in branches]
    for branch in branches:
        size = len(branch.token_ids)
        assert size == len(branch.loss_mask) == len(branch.logprobs) == branch.segments[-1].end
        sampled = [p is not None and math.isfinite(p) for p in branch.logprobs]
        assert sampled == [mask == 1 for mask in branch.loss_mask]
        assert (branch.parent is None) == (branch.kind is BranchKind.MAIN) == (branch.index == 0)
        if branch.parent is not None:
            assert branch.parent < branch.index
            assert 0 < branch.parent_length <= len(branches[branch.parent].token_ids)
        covered = np.zeros(size, dtype=np.uint8)
        for turn in (turn for turn in turns if turn.branch == branch.index):
            start = turn.request.length
            sent = ids[branch.index][:start].tobytes()
            assert turn.request.sha256 == hashlib.sha256(sent).hexdigest()
            assert not covered[start : start + turn.completion_tokens].any()
            covered[start : start + turn.completion_tokens] = 1
        assert covered.tolist() == list(branch.loss_mask)
    trained = sum(branch.sampled for branch in branches)
    assert trained == sum(turn.completion_tokens for turn in turns)
    assert trained == engine.sampled
    for request in engine.requests:
        assert ids[request.branch][: len(request.input_ids)].tolist() == request.input_ids.tolist()


@dataclass
class Played:
    """An episode that can be run, whose branches hold when it has; for tests."""

    context: AgentContext
    program: Agent

    async def run(self) -> StopReason:
        stop = await run_agent(self.program, self.context)
        if isinstance(engine := self.context.parts.engine, Player):
            assert_hold(self.context, engine)
        return stop

    @property
    def turns(self) -> Sequence[Turn]:
        return self.context.turns

    @property
    def log(self) -> TokenLog:
        return self.context.log


def context_of(
    parts: AgentParts,
    *,
    sandbox: Sandbox | None = None,
    statement: str = "It fails.",
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    on_turn: Callable[[Turn], None] = lambda turn: None,  # noqa: ARG005
) -> AgentContext:
    return AgentContext(
        parts,
        instance=Instance(instance_id="task", problem_statement=statement, image="image"),
        episode=EPISODE,
        sampling=sampling,
        sandbox=sandbox or Echo(),
        on_turn=on_turn,
    )


def loop_of(
    engine: TokenEngine,
    *,
    sandbox: Sandbox | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    on_turn: Callable[[Turn], None] = lambda turn: None,  # noqa: ARG005
    statement: str = "It fails.",
    recording: Recording | None = None,
    program: Agent = loop,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    tools: Toolbox = TOOLS,
) -> Played:
    parts = AgentParts(engine, RENDERER, tools, Prompts(), limits, recording)
    context = context_of(
        parts, sandbox=sandbox, statement=statement, sampling=sampling, on_turn=on_turn
    )
    return Played(context, program)
