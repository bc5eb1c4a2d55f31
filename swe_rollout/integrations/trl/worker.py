"""Rollout worker of TRL's AsyncGRPOTrainer: episodes of a job, played while the trainer trains.

    AsyncGRPOTrainer(
        model,
        args=args,
        train_dataset=…,  # counted, not read: the tasks are the job's
        rollout_worker=RolloutWorker(job, args),
        weight_transfer=SglangWeights(urls, config=model),
    )

Advantages are computed here, by group. Each branch of an episode is a row, with the episode's
advantage. A failed sample has no row.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from itertools import cycle
from typing import TYPE_CHECKING

from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import InternalError, gather_all
from swe_rollout.integrations.trainer_session import TrainerSession, session_thread
from swe_rollout.integrations.trl.columns import rollout_samples, sampling_of
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import LoopThread
from swe_rollout.types.trajectory import Trajectory

if TYPE_CHECKING:
    from trl.experimental.async_grpo import AsyncGRPOConfig
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

_FULL_S = 0.05
"""The pause between two checks of a full buffer."""


class RolloutWorker:
    """Implements TRL's `RolloutWorkerProtocol`. `start` opens the job, `stop` closes it."""

    def __init__(
        self, job: RolloutJob, args: AsyncGRPOConfig, *, engine: TokenEngine | None = None
    ) -> None:
        """Sampling, group size and the buffer's bound come from `args`."""
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(args.queue_maxsize)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self._job = job
        self._engine = engine
        self._sampling = sampling_of(args)
        self._generations = args.num_generations
        self._version = 0
        self._groups = 0
        self._alive_at = time.monotonic()
        self._thread: LoopThread[TrainerSession] | None = None
        self._producing: Future[None] | None = None

    def start(self) -> None:
        """Open the job and play its tasks, in rotation, until `stop`."""
        self._thread = session_thread(self._job, engine=self._engine)
        self._alive_at = time.monotonic()
        self._producing = self._thread.submit(self._produce(self._thread.value))

    def stop(self) -> None:
        """End running episodes and close the session."""
        if self._thread is not None:
            self._thread.close()

    def update_model_version(self, model_version: int) -> None:
        """Set the servers' current version, for rows whose engine names none."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise the worker's error, or InternalError if it has finished no episode for long."""
        if self._producing is not None and self._producing.done():
            self._producing.result()
        idle_s = time.monotonic() - self._alive_at
        if idle_s > stale_after_s:
            raise InternalError(
                f"no episode has ended for {idle_s:.0f} s",
                why="engine or sandboxes do not get on",
                fix="look at the log of the job; raise heartbeat_stale_after_s for long episodes",
            )

    async def _produce(self, trainer: TrainerSession) -> None:
        """Keep as many groups in play as the job's parallelism allows."""
        at_once = -(-self._job.spec.parallelism // self._generations)
        turns = cycle(instance.instance_id for instance in trainer.session.instances)
        await gather_all(self._play_groups(turns, trainer) for _ in range(at_once))

    async def _play_groups(self, turns: Iterator[str], trainer: TrainerSession) -> None:
        while True:
            instance_id, version = next(turns), self._version
            played = [
                trainer.run_sample(instance_id, sampling=self._sampling)
                for _ in range(self._generations)
            ]
            trajectories = await gather_all(map(self._noticed, played))
            group, self._groups = self._groups, self._groups + 1
            for row in rollout_samples(
                trajectories, group, temperature=self._sampling.temperature, version=version
            ):
                await self._put(row)

    async def _noticed(self, episode: Coroutine[None, None, Trajectory]) -> Trajectory:
        trajectory = await episode
        self._alive_at = time.monotonic()
        return trajectory

    async def _put(self, row: RolloutSample) -> None:
        while self.rollout_buffer.full():
            # The trainer is behind: that is no reason to consider the worker dead.
            self._alive_at = time.monotonic()
            await asyncio.sleep(_FULL_S)
        row.enqueued_at = time.time()
        self.rollout_buffer.put_nowait(row)
