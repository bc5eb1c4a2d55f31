"""What an observer is told."""

from __future__ import annotations

from swe_rollout.events import EngineCall, Span, TurnId
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
