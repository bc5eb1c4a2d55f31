"""Spans: their tree, the attributes of the conventions, and nothing that anybody wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from swe_rollout.events import Execution, Phase, SandboxStart, Span, TurnId
from swe_rollout.telemetry import spans
from swe_rollout.telemetry.otlp import observer_of
from swe_rollout.telemetry.spans import SpanObserver
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import CallStatus, ToolCall
from unit.export.export_parts import failed, trajectory
from unit.telemetry.telemetry_parts import EPISODE, engine_call


class Recorded:
    """An observer, and what it has exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer: SpanObserver = observer_of(self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [each for each in self.spans if each.name == name]
        return found

    def parent(self, name: str) -> str | None:
        above = self.named(name).parent
        if above is None:
            return None
        (found,) = [
            each.name
            for each in self.spans
            if each.context is not None and each.context.span_id == above.span_id
        ]
        return found

    def attributes(self, name: str) -> dict[str, object]:
        return dict(self.named(name).attributes or {})


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def play(observer: SpanObserver) -> None:
    """Tell of an attempt of one turn with two calls, from its start to its commit."""
    played = trajectory()
    observer.attempt_began(EPISODE, 2)
    observer.phase(EPISODE, Phase.START)
    observer.sandbox_started(SandboxStart(EPISODE, "agent", Span(1000.0, 2.0), is_warm=True))
    observer.phase(EPISODE, Phase.AGENT)
    observer.engine_call_began(TurnId(EPISODE, 0))
    observer.engine_called(engine_call(TurnId(EPISODE, 0), waited_s=0.5))
    observer.executed(Execution(EPISODE, "agent", Span(1001.0, 0.25), exit_code=3))
    submit = ToolCall(CallStatus.OK, "raw", "submit")
    turn = played.turns[0]
    observer.turn(EPISODE, replace(turn, tool_calls=(turn.tool_calls[0], submit)))
    observer.phase(EPISODE, Phase.GRADE)
    observer.attempt_ended(EPISODE, played)
    observer.phase(EPISODE, Phase.COMMIT)
    observer.done(played)


def test_the_tree_of_an_attempt(recorded: Recorded) -> None:
    play(recorded.observer)
    tree = {each.name: recorded.parent(each.name) for each in recorded.spans}
    assert tree == {
        "episode": None,
        "start": "episode",
        "sandbox start": "start",
        "agent": "episode",
        "turn": "agent",
        "chat Qwen/Qwen3-8B": "turn",
        "exec": "turn",
        "execute_tool bash": "turn",
        "execute_tool submit": "turn",
        "grade": "episode",
        "commit": "episode",
    }
    assert len({each.context.trace_id for each in recorded.spans if each.context}) == 1


def test_attributes_follow_the_conventions_for_generative_ai(recorded: Recorded) -> None:
    play(recorded.observer)
    call = recorded.named("chat Qwen/Qwen3-8B")
    assert call.kind is SpanKind.CLIENT
    assert recorded.attributes("chat Qwen/Qwen3-8B") == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "sglang",
        "gen_ai.request.model": "Qwen/Qwen3-8B",
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.seed": 7,
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.finish_reasons": ("stop",),
        "swe_rollout.waited_seconds": 0.5,
    }
    tool = recorded.attributes("execute_tool bash")
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "bash")
    assert recorded.attributes("exec")["process.exit.code"] == 3
    assert recorded.attributes("sandbox start")["swe_rollout.warm"] is True
    episode = recorded.attributes("episode")
    assert episode["gen_ai.conversation.id"] == "demo/a/0"
    assert episode["swe_rollout.types.instance"] == "a"
    assert episode["swe_rollout.attempt"] == 2
    assert episode["swe_rollout.reward"] == 1.0


def test_measured_spans_have_their_own_times(recorded: Recorded) -> None:
    play(recorded.observer)
    span = recorded.named("exec")
    assert (span.start_time, span.end_time) == (1001_000_000_000, 1001_250_000_000)
    turn, bash, submit = map(recorded.named, ("turn", "execute_tool bash", "execute_tool submit"))
    assert turn.start_time is not None
    assert turn.end_time is not None
    assert bash.start_time is not None
    assert turn.end_time - turn.start_time == pytest.approx(1.5e9, abs=1000)
    assert bash.start_time - turn.start_time == pytest.approx(1e9, abs=1000)
    assert submit.start_time == pytest.approx(bash.end_time, abs=1000)


def test_no_span_holds_what_anybody_wrote(recorded: Recorded) -> None:
    """Neither prompts, outputs, commands nor messages of errors, which may hold secrets."""
    observer, secret = recorded.observer, "s3cret"
    played = trajectory(text=secret)
    turn = played.turns[0]
    calls = tuple(
        replace(each, raw=secret, arguments={"command": secret}) for each in turn.tool_calls
    )
    seen = tuple(replace(each, text=secret) for each in turn.observations)
    unknown = ToolCall(CallStatus.UNKNOWN_TOOL, secret, secret, problem=secret)
    broken = failed(replace(played, patch=secret, stop_evidence=secret))
    assert broken.failure is not None
    broken = replace(broken, failure=replace(broken.failure, message=secret))
    observer.attempt_began(EPISODE, 1)
    observer.phase(EPISODE, Phase.AGENT)
    observer.engine_call_began(TurnId(EPISODE, 0))
    observer.engine_called(engine_call(TurnId(EPISODE, 0), error="EngineError"))
    told = replace(turn, tool_calls=(*calls, unknown), observations=(*seen, seen[0]), text=secret)
    observer.turn(EPISODE, told)
    observer.attempt_ended(EPISODE, broken)
    assert len(recorded.spans) == 6
    assert secret not in "".join(each.to_json() for each in recorded.spans)


def test_what_went_wrong_has_the_name_of_its_class(recorded: Recorded) -> None:
    observer = recorded.observer
    observer.attempt_began(EPISODE, 1)
    observer.phase(EPISODE, Phase.AGENT)
    observer.engine_call_began(TurnId(EPISODE, 0))
    observer.engine_called(engine_call(TurnId(EPISODE, 0), error="EngineLostError"))
    observer.attempt_ended(EPISODE, failed(trajectory()))
    errors = {each.name: each for each in recorded.spans if each.name != "agent"}
    assert {name: (each.attributes or {})["error.type"] for name, each in errors.items()} == {
        "chat Qwen/Qwen3-8B": "EngineLostError",
        "turn": "cut_off",
        "episode": "SandboxError",
    }
    assert all(each.status.status_code is StatusCode.ERROR for each in errors.values())
    assert all(not each.status.description and not each.events for each in errors.values())


def test_an_attempt_that_is_broken_off_leaves_no_span_open(recorded: Recorded) -> None:
    observer = recorded.observer
    observer.attempt_began(EPISODE, 1)
    observer.phase(EPISODE, Phase.START)
    observer.attempt_ended(EPISODE, None)
    assert recorded.attributes("episode")["error.type"] == "broken_off"
    assert {each.name for each in recorded.spans} == {"episode", "start"}


def test_a_sub_agents_commands_are_in_its_own_turn(recorded: Recorded) -> None:
    observer = recorded.observer
    observer.attempt_began(EPISODE, 1)
    observer.phase(EPISODE, Phase.AGENT)
    for index, branch in ((0, 0), (1, 1)):
        observer.engine_call_began(TurnId(EPISODE, index, branch))
    observer.executed(Execution(EPISODE, "agent", Span(1.0, 1.0), branch=1, exit_code=0))
    observer.executed(Execution(EPISODE, "agent", Span(1.0, 1.0), branch=0, exit_code=0))
    observer.attempt_ended(EPISODE, trajectory())
    ids = {
        (each.attributes or {}).get("swe_rollout.branch"): each.context.span_id
        for each in recorded.spans
        if each.name == "turn" and each.context
    }
    parents = [
        each.parent.span_id for each in recorded.spans if each.name == "exec" and each.parent
    ]
    assert parents == [ids[1], ids[0]]


def test_lines_of_an_attempt_have_the_trace(recorded: Recorded) -> None:
    with structlog.contextvars.bound_contextvars():
        recorded.observer.attempt_began(EPISODE, 1)
        bound = structlog.contextvars.get_contextvars()["trace_id"]
        recorded.observer.attempt_ended(EPISODE, trajectory())
        assert "trace_id" not in structlog.contextvars.get_contextvars()
    context = recorded.named("episode").context
    assert context is not None
    assert bound == f"{context.trace_id:032x}"


def test_episodes_that_are_never_committed_do_not_pile_up(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "COMMITS_KEPT", 3)
    for sample in range(10):
        episode = EpisodeId("demo", "a", sample)
        recorded.observer.attempt_began(episode, 1)
        recorded.observer.attempt_ended(episode, None)
    for sample in range(10):
        recorded.observer.phase(EpisodeId("demo", "a", sample), Phase.COMMIT)
        recorded.observer.done(replace(trajectory(), episode=EpisodeId("demo", "a", sample)))
    assert [each.name for each in recorded.spans].count("commit") == 3


def test_what_belongs_to_no_attempt_is_ignored(recorded: Recorded) -> None:
    turn = TurnId(EPISODE, 0)
    recorded.observer.engine_call_began(turn)
    recorded.observer.engine_called(engine_call(turn))
    recorded.observer.executed(Execution(EPISODE, "agent", Span(1.0, 1.0)))
    recorded.observer.turn(EPISODE, trajectory().turns[0])
    recorded.observer.done(trajectory())
    recorded.observer.attempt_ended(EPISODE, None)
    assert recorded.spans == ()
