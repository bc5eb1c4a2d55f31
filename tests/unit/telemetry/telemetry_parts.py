"""What an observer is told, and one that remembers it."""

from __future__ import annotations

from dataclasses import dataclass, field

from swe_rollout.events import EngineCall, Execution, SandboxStart, Span, TurnId
from swe_rollout.observer import Observer
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason

EPISODE = EpisodeId("demo", "a", 0)


def engine_call(
    turn: TurnId, *, seconds: float = 1.0, waited_s: float = 0.0, error: str = ""
) -> EngineCall:
    return EngineCall(
        turn,
        "sglang:Qwen/Qwen3-8B",
        Sampling(temperature=0.5, seed=7),
        max_new_tokens=100,
        span=Span(1000.0, seconds, error),
        waited_s=waited_s,
        prompt_tokens=0 if error else 40,
        cached_tokens=0 if error else 30,
        sampled_tokens=0 if error else 5,
        finish_reason=None if error else FinishReason.STOP,
    )


@dataclass
class Remembers(Observer):
    """Keeps the calls, starts and commands that it is told of."""

    began: list[TurnId] = field(default_factory=list)
    calls: list[EngineCall] = field(default_factory=list)
    starts: list[SandboxStart] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    attempts: list[tuple[EpisodeId, int | None]] = field(default_factory=list)

    def engine_call_began(self, turn: TurnId) -> None:
        self.began.append(turn)

    def engine_called(self, call: EngineCall) -> None:
        self.calls.append(call)

    def sandbox_started(self, start: SandboxStart) -> None:
        self.starts.append(start)

    def executed(self, execution: Execution) -> None:
        self.executions.append(execution)
