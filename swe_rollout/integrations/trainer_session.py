"""TrainerSession: a job's session as the processes of a trainer play it.

Two things are added: numbers that no other process gives to its samples, and a bound on the samples
that fail, above which the trainer is stopped.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import Boundary
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import LoopThread
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.groups import Group
from swe_rollout.training.sample_bounds import FailureRate, FailureRateError
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.session import Session

JOB_VARIABLE: Final = "SWE_ROLLOUT_JOB"
"""Names the job file where a trainer's own configuration does not."""
BLOCK: Final = 2**24
"""Samples of one task that a process can number."""
_BLOCKS: Final = 2**26
REFILLS: Final = 2
"""Samples played in place of one that failed."""


def block_of_rank() -> int:
    """Return the first number of this process by its RANK, which torchrun and accelerate set.

    It is the same in every run, and 0 for a process that is alone.
    """
    return int(os.environ.get("RANK") or 0) * BLOCK


def block_by_chance() -> int:
    """Return the first number of a process that does not know of the others, such as Ray's.

    Two of 64 processes share a block once in 30,000 trainings.
    """
    return secrets.randbelow(_BLOCKS) * BLOCK


class TrainerSession:
    """Plays episodes for a trainer until too many of them failed."""

    def __init__(self, session: Session, rate: FailureRate | None = None) -> None:
        """By default the bound of `rate` is the job's `spec.failureBudget`."""
        self.session = session
        self._rate = rate or FailureRate(session.job.spec.failure_budget.max_masked_fraction)
        self._stopped: FailureRateError | None = None

    def next_sample(self, instance_id: str) -> EpisodeId:
        """Return the episode of a task's next sample."""
        number = self.session.new_samples(instance_id)
        return EpisodeId(self.session.job.metadata.name, instance_id, number)

    async def run_episode(
        self, instance_id: str, *, sample: int | None = None, sampling: Sampling | None = None
    ) -> Trajectory:
        """Play an episode as `Session.run_episode` does.

        Raises FailureRateError when too many of the last samples failed, and from then on: trainers
        that go on after an error must not go on burning sandboxes.
        """
        self._require_running()
        found = await self.session.run_episode(instance_id, sample=sample, sampling=sampling)
        self._count([None if found.failure is None else found.failure.boundary])
        return found

    async def run_sample(self, instance_id: str, *, sampling: Sampling | None = None) -> Trajectory:
        """Play a sample of a task; return it, or the last of those that failed in its place.

        One that failed for good is replaced by another sample, not its group. Raises
        FailureRateError as above.
        """
        for _ in range(1 + REFILLS):
            found = await self.run_episode(instance_id, sampling=sampling)
            if found.failure is None or not found.failure.retryable:
                break
        return found

    async def run_group(
        self, instance_id: str, *, samples: int | None = None, sampling: Sampling | None = None
    ) -> Group:
        """Play a group as `Session.run_group` does. Raises FailureRateError as above."""
        self._require_running()
        found = await self.session.run_group(instance_id, samples=samples, sampling=sampling)
        self._count([*(each.owner for each in found.failed), *(None for _ in found.trajectories)])
        return found

    def _require_running(self) -> None:
        if self._stopped is not None:
            # Each raise adds to the traceback, and a trainer may go on for hours.
            raise self._stopped.with_traceback(None)

    def _count(self, owners: Iterable[Boundary | None]) -> None:
        try:
            self._rate.add(owners)
        except FailureRateError as error:
            self._stopped = error
            raise


@asynccontextmanager
async def trainer_session(
    job: RolloutJob, *, engine: TokenEngine | None = None, first_sample: int | None = None
) -> AsyncIterator[TrainerSession]:
    """Open a job for a trainer; arguments and errors are those of `RolloutJob.session`.

    Without `first_sample`, its samples are numbered in a block of its own.
    """
    first = block_by_chance() if first_sample is None else first_sample
    async with job.session(engine=engine, first_sample=first) as session:
        yield TrainerSession(session)


def session_thread(
    job: RolloutJob, *, engine: TokenEngine | None = None
) -> LoopThread[TrainerSession]:
    """Open a job in a thread beside the trainer's; raises what `trainer_session` raises.

    Each process of a training opens the job, and numbers its samples by its rank.
    """
    session = trainer_session(job, engine=engine, first_sample=block_of_rank())
    return LoopThread(session, name=f"session-{job.metadata.name}")
