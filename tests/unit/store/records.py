"""Jobs and trajectories to store."""

from __future__ import annotations

from dataclasses import replace

from swe_rollout.spec.job import RolloutJob
from swe_rollout.types.episode import EpisodeId, StopReason, Timing
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm, TestReport, Verdict, VerdictStatus

RESOLVED = Verdict(VerdictStatus.RESOLVED, TestReport({}, {}))


UNRESOLVED = replace(RESOLVED, status=VerdictStatus.UNRESOLVED)


def job(**spec: object) -> RolloutJob:
    base = {
        "dataset": {"releasePairs": {}},
        "policy": {"scripted": {}},
        "samples": 2,
    }
    return RolloutJob.model_validate({"metadata": {"name": "demo"}, "spec": base | spec})


def tasks(*names: str) -> dict[str, str]:
    """Tasks by name, each with the digest of its content."""
    return {name: f"digest-{name}" for name in names}


def trajectory(
    instance: str = "demo__one-1", sample: int = 0, verdict: Verdict | None = RESOLVED
) -> Trajectory:
    return Trajectory(
        episode=EpisodeId("demo", instance, sample),
        policy="scripted:gold",
        token_ids=(1, 2, 3),
        loss_mask=(0, 0, 1),
        logprobs=(None, None, -0.5),
        segments=(),
        turns=(),
        stop_reason=StopReason.SUBMITTED,
        patch="",
        verdict=verdict,
        reward=None
        if verdict is None
        else Reward((RewardTerm("resolved", float(verdict.resolved)),)),
        failure=None,
        attempt=1,
        seed=7,
        timing=Timing(),
        spec_digest=job().digest,
        software={},
        finished_at="2026-01-02T03:04:05.678+00:00",
        instance_digest=f"digest-{instance}",
    )
