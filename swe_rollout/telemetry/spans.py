"""Spans for OpenTelemetry: attempts, phases, turns, calls of the engine and of tools, commands.

Attributes follow the semantic conventions for generative AI where these exist. No span holds a
prompt, an output, a command or an error message: only names and numbers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from swe_rollout.events import EngineCall, Execution, Phase, SandboxStart, Span, TurnId
from swe_rollout.observer import Observer
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Turn

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer
    from opentelemetry.util.types import AttributeValue

COMMITS_KEPT: Final = 4096
"""Ended attempts that are remembered because they may yet be committed."""


@dataclass(slots=True)
class _OpenTurn:
    index: int
    began_at: float
    span: trace.Span


@dataclass(slots=True)
class _OpenAttempt:
    span: trace.Span
    phase: trace.Span | None = None
    turns: dict[int, _OpenTurn] = field(default_factory=dict)
    """Open turns by branch."""

    def around(self, branch: int) -> trace.Span:
        """Return the innermost open span."""
        turn = self.turns.get(branch)
        return turn.span if turn else self.phase or self.span


class SpanObserver(Observer):
    """Creates spans from the events of a run."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[EpisodeId, _OpenAttempt] = {}
        self._ended: OrderedDict[EpisodeId, trace.Span] = OrderedDict()
        self._commits: dict[EpisodeId, trace.Span] = {}

    def attempt_began(self, episode: EpisodeId, number: int) -> None:
        span = self._tracer.start_span(
            "episode",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.conversation.id": str(episode),
                "swe_rollout.job": episode.job,
                "swe_rollout.types.instance": episode.instance,
                "swe_rollout.sample": episode.sample,
                "swe_rollout.attempt": number,
            },
            context=trace.set_span_in_context(trace.INVALID_SPAN),
        )
        self._open[episode] = _OpenAttempt(span)
        trace_id = trace.format_trace_id(span.get_span_context().trace_id)
        structlog.contextvars.bind_contextvars(trace_id=trace_id)

    def attempt_ended(self, episode: EpisodeId, trajectory: Trajectory | None) -> None:
        structlog.contextvars.unbind_contextvars("trace_id")
        if (attempt := self._open.pop(episode, None)) is None:
            return
        for turn in attempt.turns.values():
            _end(turn.span, "cut_off")
        if attempt.phase is not None:
            attempt.phase.end()
        attempt.span.set_attributes(_result(trajectory))
        failure = trajectory.failure.type if trajectory and trajectory.failure else ""
        _end(attempt.span, failure if trajectory else "broken_off")
        self._ended[episode] = attempt.span
        if len(self._ended) > COMMITS_KEPT:
            self._ended.popitem(last=False)

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        if phase is Phase.COMMIT:
            if (ended := self._ended.pop(episode, None)) is not None:
                self._commits[episode] = self._child(ended, phase.value)
            return
        if (attempt := self._open.get(episode)) is not None:
            if attempt.phase is not None:
                attempt.phase.end()
            attempt.phase = self._child(attempt.span, phase.value)

    def done(self, trajectory: Trajectory) -> None:
        if (span := self._commits.pop(trajectory.episode, None)) is not None:
            span.end()

    def engine_call_began(self, turn: TurnId) -> None:
        attempt = self._open.get(turn.episode)
        if attempt is None:
            return
        before = attempt.turns.get(turn.branch)
        if before is not None and before.index == turn.index:
            return
        if before is not None:
            _end(before.span, "cut_off")
        began_at = time.time()
        span = self._child(
            attempt.phase or attempt.span,
            "turn",
            {"swe_rollout.types.turn": turn.index, "swe_rollout.branch": turn.branch},
            began_at=began_at,
        )
        attempt.turns[turn.branch] = _OpenTurn(turn.index, began_at, span)

    def engine_called(self, call: EngineCall) -> None:
        attempt = self._open.get(call.turn.episode)
        if attempt is None:
            return
        provider, _, model = call.policy.partition(":")
        sampling = call.sampling
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": call.max_new_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.usage.input_tokens": call.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
            "gen_ai.usage.output_tokens": call.sampled_tokens,
            "swe_rollout.waited_seconds": call.waited_s,
        }
        if sampling.top_k > 0:
            attributes["gen_ai.request.top_k"] = sampling.top_k
        if sampling.seed is not None:
            attributes["gen_ai.request.seed"] = sampling.seed
        if call.finish_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = [call.finish_reason.value]
        self._past(
            attempt.around(call.turn.branch),
            f"chat {model}",
            call.span,
            attributes,
            kind=SpanKind.CLIENT,
        )

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        attempt = self._open.get(episode)
        opened = attempt.turns.pop(turn.branch, None) if attempt else None
        if opened is None:
            return
        at = opened.began_at + turn.engine_s
        for call, seen in zip(turn.tool_calls, turn.observations, strict=False):
            if call.status is CallStatus.OK:
                span = self._tracer.start_span(
                    f"execute_tool {call.name}",
                    context=trace.set_span_in_context(opened.span),
                    attributes={
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": call.name,
                        "gen_ai.tool.type": "function",
                    },
                    start_time=_ns(at),
                )
                span.end(_ns(at + seen.duration_s))
            at += seen.duration_s
        opened.span.set_attributes(
            {
                "gen_ai.response.finish_reasons": [turn.finish_reason.value],
                "gen_ai.usage.output_tokens": turn.completion_tokens,
                "swe_rollout.tool_calls": len(turn.tool_calls),
            }
        )
        opened.span.end(_ns(opened.began_at + turn.engine_s + turn.tools_s))

    def sandbox_started(self, start: SandboxStart) -> None:
        if (attempt := self._open.get(start.episode)) is not None:
            self._past(
                attempt.phase or attempt.span,
                "sandbox start",
                start.span,
                {"swe_rollout.role": start.role, "swe_rollout.warm": start.is_warm},
            )

    def executed(self, execution: Execution) -> None:
        attempt = self._open.get(execution.episode)
        if attempt is None:
            return
        attributes: dict[str, AttributeValue] = {
            "swe_rollout.role": execution.role,
            "swe_rollout.timed_out": execution.timed_out,
        }
        if execution.exit_code is not None:
            attributes["process.exit.code"] = execution.exit_code
        self._past(attempt.around(execution.branch), "exec", execution.span, attributes)

    def _child(
        self,
        parent: trace.Span,
        name: str,
        attributes: dict[str, AttributeValue] | None = None,
        *,
        began_at: float | None = None,
    ) -> trace.Span:
        return self._tracer.start_span(
            name,
            context=trace.set_span_in_context(parent),
            attributes=attributes,
            start_time=None if began_at is None else _ns(began_at),
        )

    def _past(
        self,
        parent: trace.Span,
        name: str,
        measured: Span,
        attributes: dict[str, AttributeValue],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        """Create a span for an operation that has already ended."""
        context: Context = trace.set_span_in_context(parent)
        span = self._tracer.start_span(
            name,
            context=context,
            kind=kind,
            attributes=attributes,
            start_time=_ns(measured.began_at),
        )
        _end(span, measured.error, at=measured.began_at + measured.seconds)


def _result(trajectory: Trajectory | None) -> dict[str, AttributeValue]:
    """Return the attributes for the outcome of an attempt."""
    if trajectory is None:
        return {}
    found: dict[str, AttributeValue] = {
        "swe_rollout.policy": trajectory.policy,
        "swe_rollout.turns": len(trajectory.turns),
        "gen_ai.usage.output_tokens": trajectory.sampled_count,
    }
    if trajectory.stop_reason is not None:
        found["swe_rollout.stop_reason"] = trajectory.stop_reason.value
    if trajectory.verdict is not None:
        found["swe_rollout.types.verdict"] = trajectory.verdict.status.value
    if trajectory.reward is not None:
        found["swe_rollout.reward"] = trajectory.reward.value
    if trajectory.failure is not None:
        found["swe_rollout.failure.owner"] = trajectory.failure.boundary.value
    return found


def _end(span: trace.Span, error: str, *, at: float | None = None) -> None:
    """End a span; `error` is the class of the error, of which nothing else is exported."""
    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end(None if at is None else _ns(at))


def _ns(at: float) -> int:
    return int(at * 1e9)
