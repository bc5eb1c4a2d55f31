"""Episodes, turns and trajectories of a run, and a console that keeps its output."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console

from swe_rollout.errors import Boundary
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import EpisodeId, Failure, StopReason, Timing
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Turn
from swe_rollout.types.verdict import Reward, RewardTerm, TestReport, Verdict, VerdictStatus

FAILURE = Failure(Boundary.SANDBOX, "PodLostError", "the pod\x1b[2J was evicted", retryable=True)


@dataclass
class Screen:
    """A console whose output is kept."""

    console: Console
    stream: io.StringIO

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def open_screen(*, terminal: bool = False, width: int = 100) -> Screen:
    stream = io.StringIO()
    made = Console(file=stream, force_terminal=terminal, width=width, color_system=None)
    return Screen(made, stream)


def episode(sample: int, instance: str = "sqlparse") -> EpisodeId:
    return EpisodeId("demo", instance, sample)


def turn(seconds: float) -> Turn:
    return Turn(0, RequestProof(100, ""), "", FinishReason.STOP, 7, 50, engine_s=seconds)


def ended(
    sample: int, reward: float | None, *, instance: str = "sqlparse", failure: Failure | None = None
) -> Trajectory:
    status = VerdictStatus.RESOLVED if reward == 1 else VerdictStatus.UNRESOLVED
    return Trajectory(
        episode=episode(sample, instance),
        policy="scripted:gold",
        token_ids=(1, 2),
        loss_mask=(0, 1),
        logprobs=(None, -0.5),
        segments=(),
        turns=(turn(1.0),),
        stop_reason=None if failure else StopReason.SUBMITTED,
        patch="",
        verdict=None if reward is None else Verdict(status, TestReport({}, {})),
        reward=None if reward is None else Reward((RewardTerm("resolved", reward),)),
        failure=failure,
        attempt=1,
        seed=0,
        timing=Timing(total_s=2.5),
        spec_digest="",
        software={},
        finished_at="",
    )
