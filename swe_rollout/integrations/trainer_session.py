"""TrainerSession: a job's session as played by the processes of a trainer.

It adds sample numbers that no other process uses, and a bound on failed samples above which the
trainer is stopped.
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
"""Names the job file if a trainer's own configuration does not."""
BLOCK: Final = 2**24
"""How many samples of one task a process can number."""
_BLOCKS: Final = 2**26


def block_of_rank() -> int:
    """Return the first number of this process from its RANK, which torchrun and accelerate set.

    It is the same in every run, and 0 for a single process.
    """
    return int(os.environ.get("RANK") or 0) * BLOCK


def block_by_chance() -> int:
    """Return the first number of a process that is unaware of the others, as in Ray.

    Two of 64 processes share a block once in 30,000 trainings.
    """
    return secrets.randbelow(_BLOCKS) * BLOCK


class TrainerSession:
    """Plays episodes for a trainer until too many of them failed."""

    def __init__(self, session: Session, rate: FailureRate | None = None) -> None:
        """`rate` bounds the failures, by default as the job's `spec.failureBudget` does."""
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

        Raises FailureRateError once too many of the last samples failed, and from then on: trainers
        that continue after an error must not keep wasting sandboxes.
        """
        self._require_running()
        found = await self.session.run_episode(instance_id, sample=sample, sampling=sampling)
        self._count([None if found.failure is None else found.failure.boundary])
        return found

    async def run_sample(self, instance_id: str, *, sampling: Sampling | None = None) -> Trajectory:
        """Play a sample of a task, replacing it if it fails; return the last one played.

        A failure replaces only the sample, not its group. Raises
        FailureRateError as above.
        """
        for _ in range(1 + self.session.job.spec.retry.refills):
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
            # Each raise adds to the traceback, and a trainer may continue for hours.
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

    Without `first_sample`, samples are numbered in a block of their own.
    """
    first = block_by_chance() if first_sample is None else first_sample
    async with job.session(engine=engine, first_sample=first) as session:
        yield TrainerSession(session)


def session_thread(
    job: RolloutJob, *, engine: TokenEngine | None = None
) -> LoopThread[TrainerSession]:
    """Open a job in a thread beside the trainer's; raises what `trainer_session` raises.

    Each process of a training run opens the job, and numbers its samples by its rank.
    """
    session = trainer_session(job, engine=engine, first_sample=block_of_rank())
    return LoopThread(session, name=f"session-{job.metadata.name}")
