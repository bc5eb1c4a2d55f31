"""`rollout_func` for TRL's GRPOTrainer: play each prompt as an episode.

A row of the trainer's dataset names a task (`Rollouts.rows`). TRL repeats each row
`num_generations` times and compares the rows of one task. An episode that failed is replaced by
another sample of its task; if that fails too, its row is masked and has no reward, so that it
enters no mean.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import UsageError, gather_all
from swe_rollout.integrations.trainer_session import session_thread
from swe_rollout.integrations.trl.columns import (
    RolloutColumns,
    columns,
    require_rollouts,
    sampling_of,
)
from swe_rollout.integrations.trl.weights import SglangWeights
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.samples import TrainingSample, training_samples
from swe_rollout.worker.session import Session

if TYPE_CHECKING:
    from trl import GRPOTrainer

T = TypeVar("T")


def graded_reward(*, reward: list[float | None], **_: object) -> list[float | None]:
    """Return the grader's rewards, as a reward function for TRL; None if not to be trained on."""
    return reward


class Rollouts:
    """Plays the episodes of a job for a GRPOTrainer, in a thread beside it."""

    def __init__(
        self,
        job: RolloutJob,
        *,
        weights: SglangWeights | None = None,
        engine: TokenEngine | None = None,
    ) -> None:
        """Open the job; raises the errors of `RolloutJob.session`.

        `weights` receives the trainer's before the first episode of each step. `engine` takes the
        place of the one that the job names.
        """
        if not job.spec.grading.enabled:
            raise UsageError(
                "the job grades nothing", fix="remove spec.grading.enabled: rewards come from it"
            )
        self._weights = weights
        self._sent: int | None = None
        self._thread = session_thread(job, engine=engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End running episodes and close the session."""
        self._thread.close()
        if self._weights is not None:
            self._weights.destroy()

    @property
    def session(self) -> Session:
        """The open session; use `run` for its coroutines."""
        return self._thread.value.session

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run `work` on the session's event loop and return its result."""
        return self._thread.run(work)

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the trainer's dataset, one for each task: its id as `prompt`."""
        return [{"prompt": each.instance_id} for each in self._thread.value.session.instances]

    def __call__(self, prompts: Sequence[str], trainer: GRPOTrainer) -> RolloutColumns:
        """Play an episode for each prompt; TRL has already repeated the prompts for the group."""
        require_rollouts(trainer)
        self.send_weights(trainer)
        sampling = sampling_of(trainer.args)
        samples = self._thread.run(self._play(prompts, sampling))
        pad = trainer.processing_class.pad_token_id
        return columns(samples, pad=pad, temperature=sampling.temperature)

    def send_weights(self, trainer: GRPOTrainer) -> None:
        """Send the trainer's weights to the servers, unless they already have this step's."""
        if self._weights is None or self._sent == trainer.state.global_step:
            return
        # This is collective: sharded weights are gathered from all processes.
        state = trainer.accelerator.get_state_dict(trainer.model)
        if trainer.accelerator.is_main_process:
            self._weights.publish(state.items())
        trainer.accelerator.wait_for_everyone()
        self._sent = trainer.state.global_step

    async def _play(self, prompts: Sequence[str], sampling: Sampling) -> Sequence[TrainingSample]:
        return await gather_all(self._sample(each, sampling) for each in prompts)

    async def _sample(self, instance_id: str, sampling: Sampling) -> TrainingSample:
        trajectory = await self._thread.value.run_sample(instance_id, sampling=sampling)
        branches = training_samples(trajectory)
        if len(branches) != 1:
            raise UsageError(
                f"{branches[0].rollout_id} has {len(branches)} branches",
                why="rollout_func returns one row for each prompt, and a branch is a row",
                fix="use AsyncGRPOTrainer with RolloutWorker, or an agent without sub-agents and "
                "without limits.compactAt",
            )
        return branches[0]
