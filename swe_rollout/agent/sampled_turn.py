"""A turn while its episode runs: the sampled text, its record so far, and how it is parsed.

A program gets a `SampledTurn`; `TurnBuilder` collects the data that `types.turn.Turn` stores.
Nothing that a policy writes raises an error here, and the cost is linear in its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import (
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    not_run,
    thoughts,
    unless_refused,
)
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import InternalError, MisuseError, failure_of
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import (
    CallStatus,
    FinishReason,
    Generation,
    Observation,
    TokenSpan,
    ToolCall,
    Turn,
    WeightSpan,
)

MAX_CALLS = 128
"""Maximum attempts per turn that get a result of their own, which the next prompt must hold."""
_REPLACEMENT = "\ufffd"
"""The character for bytes that are not UTF-8, which a policy may also write itself."""
_SHORT_TOKENS = 512
"""Turns up to this size are parsed on the event loop, in a few milliseconds at most."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One sampled turn, of which nothing has been run."""

    text: str = ""
    """The whole text, decoded for people; empty if a limit left no room for a turn."""
    words: str = ""
    """The text without reasoning, control tokens and the headers of messages."""
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason | None = None
    """Why the agent can't simply go on: it made no call, or a limit was reached."""
    reasoning_is_open: bool = False
    """Whether the turn was truncated inside its reasoning."""


@dataclass(slots=True)
class TurnBuilder:
    """An unfinished turn: its sampled tokens and results so far; `build` returns its record."""

    index: int
    request: RequestProof
    """Proof of the first request; an aborted turn continues from its own ids."""
    branch: int = 0
    message: str = ""
    """The user message that the program wrote before the turn."""
    ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason = FinishReason.ABORT
    cached_tokens: int = 0
    spans: list[WeightSpan] = field(default_factory=list)
    text: str = ""
    """The decoded text, set once the turn has been read."""
    calls: tuple[ToolCall, ...] = ()
    observations: list[Observation] = field(default_factory=list)
    """The results so far, in the order of the calls."""
    engine_s: float = 0.0
    tools_s: float = 0.0
    counted_tokens: int = 0
    """The chat API's count of tokens, for a turn without ids."""

    @property
    def results(self) -> list[str]:
        """The texts of the results so far."""
        return [observation.text for observation in self.observations]

    @property
    def left(self) -> tuple[ToolCall, ...]:
        """The calls without a result."""
        return self.calls[len(self.observations) :]

    def next(self, wanted: Sequence[ToolCall] | None) -> tuple[ToolCall, ...]:
        """Return the wanted calls, or all calls without a result if `wanted` is None.

        Raises MisuseError unless they are the next calls without a result.
        """
        if wanted is None:
            return self.left
        found = self.left[: len(wanted)]
        if len(found) != len(wanted) or any(a is not b for a, b in zip(found, wanted, strict=True)):
            raise MisuseError(
                "the agent answered calls that are not the next ones of its last turn",
                why=f"{len(self.left)} of its {len(self.calls)} calls have no answer yet",
                fix="answer the calls of the last turn once each, in their order",
            )
        return found

    def refuse_the_rest(self) -> None:
        """Refuse the calls after a submission, so that the conversation can go on."""
        problem = not_run("an earlier call of the turn handed the work in")
        self.observations.extend(Observation(problem) for _ in self.left)

    def add(self, generation: Generation) -> None:
        """Add one response; offsets of weight spans count from the start of the turn."""
        before = len(self.ids)
        if not before:
            self.cached_tokens = generation.cached_tokens
        self.spans += [
            WeightSpan(span.version, before + span.start, before + span.end)
            for span in generation.weight_versions
        ]
        self.ids += generation.token_ids
        self.finish_reason = generation.finish_reason

    def build(self) -> Turn:
        """Return the record of the turn so far."""
        return Turn(
            index=self.index,
            request=self.request,
            text=self.text,
            finish_reason=self.finish_reason,
            completion_tokens=len(self.ids) or self.counted_tokens,
            cached_tokens=self.cached_tokens,
            tool_calls=self.calls,
            observations=tuple(self.observations),
            weight_versions=tuple(self.spans),
            engine_s=self.engine_s,
            tools_s=self.tools_s,
            branch=self.branch,
            message=self.message,
        )


async def read_sampled(
    renderer: Renderer, turn: TurnBuilder, *, tools: Sequence[ToolSpec], opens_reasoning: bool
) -> SampledTurn:
    """Parse a sampled turn, in a thread if it is long. `opens_reasoning` is said of its prompt."""
    read = (
        partial(read_cut_turn, renderer, turn.ids, opens_reasoning=opens_reasoning)
        if turn.finish_reason is FinishReason.LENGTH
        else partial(read_turn, renderer, turn.ids, tools=tools, opens_reasoning=opens_reasoning)
    )
    return read() if len(turn.ids) <= _SHORT_TOKENS else await off_loop(read)


def read_turn(
    renderer: Renderer, ids: Sequence[int], *, tools: Sequence[ToolSpec], opens_reasoning: bool
) -> SampledTurn:
    """Parse a complete turn; `opens_reasoning` says whether its prompt opened the reasoning."""
    sampled = renderer.sampled(ids)
    reasoning = renderer.reasoning(opened=opens_reasoning)
    found = _calls(renderer.parser, renderer.tool_format, sampled, tools, reasoning)
    calls = tuple(_if_text(call, renderer, ids) for call in _bounded(found))
    stop = None if calls else StopReason.FINISHED
    return SampledTurn(sampled.whole, words_of(sampled, reasoning), calls, stop)


def read_cut_turn(renderer: Renderer, ids: Sequence[int], *, opens_reasoning: bool) -> SampledTurn:
    """Read a truncated turn, in which nothing is run because it may contain half a call."""
    reasoning, sampled = renderer.reasoning(opened=opens_reasoning), renderer.sampled(ids)
    return SampledTurn(
        sampled.whole,
        words_of(sampled, reasoning),
        (cut_call(len(ids)),),
        reasoning_is_open=thoughts(sampled, reasoning) is None,
    )


def words_of(sampled: SampledText, reasoning: Reasoning) -> str:
    """Return the text of a turn without its reasoning, control tokens and messages' headers."""
    spans = thoughts(sampled, reasoning)
    if spans is None:
        return ""
    size, at, before = len(sampled.text), 0, ""
    # A thought comes before the tokens inside it, which it covers.
    cuts = [(start, end, "") for start, end in spans]
    cuts += [(mark.start, mark.end, mark.token) for mark in sampled.marks]
    pieces: list[str] = []
    for start, end, token in [*sorted(cuts, key=lambda cut: (cut[0], -cut[1])), (size, size, "")]:
        if start < at:
            continue
        in_first_header = not at and token in reasoning.header_ends
        if before not in reasoning.headers and not in_first_header:
            pieces.append(sampled.text[at:start])
        at, before = end, token
    return "".join(pieces).strip()


def calls_in_words(form: str, text: str, tools: Sequence[ToolSpec]) -> tuple[ToolCall, ...]:
    """Return the calls in a message's text, for a format that is part of it."""
    found = _calls(parser_for(form), form, SampledText(text, ()), tools, Reasoning())
    return _bounded(found)


def _calls(
    parser: ToolCallParser,
    form: str,
    sampled: SampledText,
    tools: Sequence[ToolSpec],
    reasoning: Reasoning,
) -> tuple[ToolCall, ...]:
    try:
        return parser.parse(sampled, tools=tools, reasoning=reasoning)
    except Exception as error:
        if (failure := failure_of(error, InternalError, f"the call format {form}")).trace:
            raise failure from error
        # The turn can't be parsed: nothing in it runs, the episode goes on.
        log.warning("parser_failed", tool_format=form, error=repr(error)[:500], exc_info=True)
        problem = "the turn could not be read; write one plain call"
        return (Refusal(CallStatus.MALFORMED, problem).call(sampled.text),)


def _if_text(call: ToolCall, renderer: Renderer, ids: Sequence[int]) -> ToolCall:
    """Refuse a call with bytes that are no text: decoding has replaced them."""
    if _REPLACEMENT not in call.raw:
        return call
    span = call.span or TokenSpan(0, len(ids))
    if renderer.is_text(ids[span.start : span.end]):
        return call
    return unless_refused(call, not_run("some of its bytes are not UTF-8"))


def _bounded(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Keep the first `MAX_CALLS` calls, and replace all others by one refused call."""
    if len(calls) <= MAX_CALLS:
        return calls
    first, last = calls[MAX_CALLS].span, calls[-1].span
    span = TokenSpan(first.start, last.end) if first and last else None
    problem = not_run(
        f"a turn may have {MAX_CALLS} calls, and this one and the {len(calls) - MAX_CALLS - 1} "
        "behind it are too many"
    )
    over = ToolCall(CallStatus.MALFORMED, "", problem=problem, span=span)
    return (*calls[:MAX_CALLS], over)


def cut_call(tokens: int) -> ToolCall:
    """Return the call that stands for the calls of a truncated turn."""
    problem = (
        f"the turn was cut after {tokens} tokens; nothing in it was run. Say less before a call, "
        "or do it in several steps."
    )
    return ToolCall(CallStatus.UNCLOSED, "", problem=problem)
