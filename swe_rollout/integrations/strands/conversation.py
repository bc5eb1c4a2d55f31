"""Conversation: the token log of one episode, and the turns that are sampled into it.

A turn that fails before anything was sampled leaves no trace, so that the agent may retry with the
same or with shorter messages. A turn that has begun continues where it stopped.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.policy_turns import TurnSampler
from swe_rollout.agent.prompts import Message, MessageRole, Prompts
from swe_rollout.agent.renderer import Rendered, Renderer
from swe_rollout.agent.sampled_turn import TurnBuilder, read_sampled
from swe_rollout.agent.tools.base import Toolbox, ToolSpec
from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.checked import Vocabulary, checked_engine
from swe_rollout.engine.errors import ContextOverflowError
from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.config import TurnSampling
from swe_rollout.integrations.strands.exceptions import HistoryError
from swe_rollout.integrations.strands.messages import NewMessages
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.log import SegmentKind, TokenLog
from swe_rollout.tokens.replay import Recording
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall

_ANEW = "call reset() and start the episode again"
_SHORT_CHARACTERS = 4096
"""Work on text up to this size takes a few milliseconds at worst, and is done at once."""
INVALID_CALL: Final = "invalid_tool_call"
"""The name that the agent sees for an unreadable call; no tool has it."""


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """What the policy said in one turn."""

    text: str
    """The text as sampled, with reasoning and calls, but without the token that ended it."""
    calls: tuple[ToolCall, ...]
    """All attempted calls, in order; empty if the turn was cut, maybe within a call."""
    use_ids: tuple[str, ...]
    """The ids of the calls in their order, unique in the episode."""
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    """Seconds from the request to the response."""


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The input of a turn."""

    new: NewMessages
    system: str
    """The system prompt, which is only rendered before the first turn."""
    tools: Sequence[ToolSpec]
    sampling: TurnSampling = field(compare=False)
    context_tokens: int | None = None
    """The limit on prompt and completion together; None for that of the engine."""


@dataclass(slots=True)
class _OpenTurn:
    """A turn whose prompt is in the log."""

    given: NewMessages
    builder: TurnBuilder
    opens_reasoning: bool


class Conversation:
    """An episode, whose turns are sampled one after another."""

    def __init__(
        self, engine: TokenEngine, renderer: Renderer, recording: Recording | None = None
    ) -> None:
        self.episode = EpisodeId("strands", uuid.uuid4().hex, 0)
        self.log = TokenLog()
        self.turns = 0
        """Number of turns sampled and parsed."""
        self._engine = engine
        self._renderer = renderer
        self._vocabulary = Vocabulary(renderer.vocab_size, renderer.special_ids)
        checked = checked_engine(engine, self._vocabulary)
        self._parts = AgentParts(checked, renderer, Toolbox(()), Prompts(), Limits(), recording)
        self._clock = Deadline(math.inf)
        self._open: _OpenTurn | None = None
        self._calls: tuple[ToolCall, ...] = ()
        self._use_ids: tuple[str, ...] = ()
        self._reasoning_is_open = False
        self._is_sampling = False

    def use(self, engine: TokenEngine) -> None:
        """Sample from this engine from now on: the same server, as seen by another event loop."""
        if engine is not self._engine:
            self._engine = engine
            checked = checked_engine(engine, self._vocabulary)
            self._parts = replace(self._parts, engine=checked)

    async def say(self, given: TurnInput) -> SaidTurn:
        """Append what is new and sample the next turn.

        Raises EngineError if the engine fails, ContextOverflowError if nothing more fits.
        """
        if self._is_sampling:
            raise UsageError(
                "the model is asked for two turns at once",
                why="it holds the tokens of one episode",
                fix="make a model for each agent; clients and tokenizers are shared",
            )
        self._is_sampling = True
        try:
            return await self._say(given)
        finally:
            self._is_sampling = False

    async def prompt_of(self, given: TurnInput) -> list[int]:
        """Return the ids of the next turn's request without keeping anything."""
        if self._open is not None:
            raise HistoryError(
                "the last turn is not complete", why="its sampling failed half way", fix=_ANEW
            )
        rendered = await self._render(given)
        return [*self.log.ids, *rendered.ids]

    def release(self) -> None:
        """Tell the engine that the episode is over."""
        self._engine.release(self.episode)

    async def _say(self, given: TurnInput) -> SaidTurn:
        opened = await self._opened(given)
        if opened.builder.finish_reason is FinishReason.ABORT:
            await self._sample(opened.builder, given)
        return await self._read(opened, given.tools)

    async def _sample(self, turn: TurnBuilder, given: TurnInput) -> None:
        budget = self._budget(given, len(turn.ids))
        sampler = TurnSampler(self._parts, self.episode, given.sampling.sampling, self.log)
        began = time.monotonic()
        try:
            await sampler.sample(turn, budget, self._clock)
        finally:
            turn.engine_s += time.monotonic() - began
            if turn.finish_reason is FinishReason.ABORT and not turn.ids:
                self._take_back()

    async def _opened(self, given: TurnInput) -> _OpenTurn:
        """Return the turn whose prompt ends with these messages."""
        if (opened := self._open) is not None:
            if opened.given != given.new:
                raise HistoryError(
                    "the messages changed while a turn was sampled",
                    why=f"{len(opened.builder.ids)} tokens of it answer the earlier ones",
                    fix=_ANEW,
                )
            return opened
        rendered = await self._render(given)
        self._check_room(given, len(rendered.ids))
        self._append(rendered.ids)
        builder = TurnBuilder(self.turns, self.log.request())
        self._open = _OpenTurn(given.new, builder, rendered.opens_reasoning)
        return self._open

    def _append(self, ids: Sequence[int]) -> None:
        if len(self.log):
            self.log.append_delta(ids, turn=self.turns)
        else:
            self.log.append_prompt(ids)

    async def _render_prompt(self, given: TurnInput) -> Rendered:
        if given.new.results:
            raise HistoryError("the conversation begins with results of calls nobody made")
        system = [Message(MessageRole.SYSTEM, given.system)] if given.system else []
        users = [Message(MessageRole.USER, text) for text in given.new.texts]
        return await off_loop(self._renderer.prompt, [*system, *users], given.tools)

    async def _render(self, given: TurnInput) -> Rendered:
        if not len(self.log):
            return await self._render_prompt(given)
        new = given.new
        size = sum(map(len, new.texts)) + sum(map(len, new.results.values()))
        render = partial(
            self._renderer.delta,
            self.log.last_id(),
            self._calls,
            results=self._results(new),
            tools=given.tools,
            open_reasoning=self._reasoning_is_open,
            messages=new.texts,
        )
        return render() if size <= _SHORT_CHARACTERS else await off_loop(render)

    def _results(self, new: NewMessages) -> list[str]:
        """Return the results in the order of the calls; raises HistoryError if any are missing."""
        if set(new.results) != set(self._use_ids):
            raise HistoryError(
                f"{len(new.results)} results for the {len(self._use_ids)} calls of the last turn",
                why="each call has one answer, which refers to it by its id",
                fix="answer the calls of the last turn, and no others",
            )
        return [new.results[use] for use in self._use_ids]

    def _check_room(self, given: TurnInput, more: int) -> None:
        size = len(self.log) + more
        if given.context_tokens is not None and size >= given.context_tokens:
            raise ContextOverflowError(f"{size} tokens fill the context of {given.context_tokens}")

    def _budget(self, given: TurnInput, sampled: int) -> int:
        """Return the maximum length of the turn, including what was already sampled."""
        if given.context_tokens is None:
            return given.sampling.max_new_tokens
        room = given.context_tokens - len(self.log) + sampled
        return min(given.sampling.max_new_tokens, room)

    def _take_back(self) -> None:
        """Remove the prompt of a turn that was never sampled, on which nothing depends."""
        earlier, ids = self.log, self.log.ids
        logprobs = earlier.logprobs.tolist()
        self._open, self.log = None, TokenLog()
        for segment in earlier.segments:
            if segment.turn == self.turns:
                continue
            run = slice(segment.start, segment.end)
            match segment.kind:
                case SegmentKind.PROMPT:
                    self.log.append_prompt(ids[run])
                case SegmentKind.DELTA:
                    self.log.append_delta(ids[run], turn=segment.turn)
                case SegmentKind.SAMPLED:
                    self.log.append_sampled(
                        ids[run],
                        logprobs[run],
                        turn=segment.turn,
                        weight_version=segment.weight_version,
                        sampling=segment.sampling,
                    )
        self.log.replay = earlier.replay
        self.log.replay.cut(len(self.log))

    async def _read(self, opened: _OpenTurn, tools: Sequence[ToolSpec]) -> SaidTurn:
        turn, renderer = opened.builder, self._renderer
        is_cut = turn.finish_reason is FinishReason.LENGTH
        found = await read_sampled(
            renderer, turn, tools=tools, opens_reasoning=opened.opens_reasoning
        )
        calls = () if is_cut else found.calls
        short = self.episode.instance[:8]
        uses = tuple(f"call_{turn.index:05}_{i:03}_{short}" for i in range(len(calls)))
        self._open, self._calls, self._use_ids = None, calls, uses
        self._reasoning_is_open = found.reasoning_is_open
        self.turns += 1
        return SaidTurn(
            text=renderer.sampled(turn.ids).text,
            calls=calls,
            use_ids=uses,
            finish=turn.finish_reason,
            prompt_tokens=turn.request.length,
            completion_tokens=len(turn.ids),
            cached_tokens=turn.cached_tokens,
            seconds=turn.engine_s,
        )


def events_of(turn: SaidTurn) -> Iterator[dict[str, object]]:
    """Yield the events of a message of the assistant."""
    yield {"messageStart": {"role": "assistant"}}
    yield from _block({}, {"text": turn.text})
    for use, call in zip(turn.use_ids, turn.calls, strict=True):
        name = call.name if call.status is CallStatus.OK else INVALID_CALL
        start: dict[str, object] = {"toolUse": {"toolUseId": use, "name": name}}
        yield from _block(start, {"toolUse": {"input": _input(call)}})
    yield {"messageStop": {"stopReason": _stop_reason(turn)}}
    usage = {
        "inputTokens": turn.prompt_tokens,
        "outputTokens": turn.completion_tokens,
        "totalTokens": turn.prompt_tokens + turn.completion_tokens,
        "cacheReadInputTokens": turn.cached_tokens,
    }
    metrics = {"latencyMs": round(1e3 * turn.seconds)}
    yield {"metadata": {"usage": usage, "metrics": metrics}}


def _block(start: dict[str, object], delta: dict[str, object]) -> Iterator[dict[str, object]]:
    yield {"contentBlockStart": {"start": start}}
    yield {"contentBlockDelta": {"delta": delta}}
    yield {"contentBlockStop": {}}


def _input(call: ToolCall) -> str:
    if call.status is CallStatus.OK:
        return json.dumps(call.arguments)
    return json.dumps({"name": call.name, "raw": call.raw, "problem": call.problem})


def _stop_reason(turn: SaidTurn) -> str:
    match turn.finish:
        case FinishReason.LENGTH:
            return "max_tokens"
        case _:
            return "tool_use" if turn.calls else "end_turn"
