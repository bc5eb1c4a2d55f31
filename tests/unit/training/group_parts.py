"""Records of groups: samples that were graded, failed or not, by one version or another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from swe_rollout.errors import Boundary
from swe_rollout.store.store import Store
from swe_rollout.tokens.log import Segment, SegmentKind
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm
from unit.store.records import job, trajectory

LOST = Failure(Boundary.SANDBOX, "PodLostError", "gone", retryable=True)
BAD_TASK = Failure(Boundary.DATASET, "TaskError", "no repository", retryable=False)


def sample(
    instance: str = "a",
    number: int = 0,
    *,
    reward: float | None = 1.0,
    failure: Failure | None = None,
    version: str | None = "1",
) -> Trajectory:
    """A record of two tokens of prompt and one that `version` sampled."""
    earned = None if failure or reward is None else Reward((RewardTerm("resolved", reward),))
    segments = (
        Segment(SegmentKind.PROMPT, 0, 2, 0),
        Segment(SegmentKind.SAMPLED, 2, 3, 0, version),
    )
    return replace(
        trajectory(instance, number),
        episode=EpisodeId("demo", instance, number),
        reward=earned,
        failure=failure,
        segments=segments,
    )


async def begin(store: Store, *instances: str, samples: int = 2) -> None:
    """Plan a job of these tasks."""
    await store.begin(job(samples=samples), {name: f"digest-{name}" for name in instances})


async def commit(store: Store, records: Mapping[str, list[Trajectory]]) -> None:
    """Commit the records of some groups."""
    for group in records.values():
        for record in group:
            assert await store.commit(record)
