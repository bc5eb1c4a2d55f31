"""SkyRL: a generator whose trajectories are the episodes of a job.

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            engine = SkyRLEngine(inference_engine_client, model_path)
            return SweGenerator(RolloutJob.from_yaml("job.yaml"), engine=engine)

Run it with `generator.step_wise_trajectories=true`: each row is then a branch of an episode, and
the rows of an episode count once. An episode that failed for technical reasons has no rows, so that
its group's mean and deviation are those of the graded ones, and no reward has to be invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import UsageError, gather_all
from swe_rollout.integrations.adapter import needed
from swe_rollout.integrations.trainer_session import trainer_session
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import held, let_go
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

with needed("skyrl"):
    from skyrl.train.generators.base import GeneratorInterface

if TYPE_CHECKING:
    from skyrl.train.generators.base import GeneratorInput, GeneratorOutput, TrajectoryID

_STOP_REASONS = {
    SampleStatus.COMPLETED: "stop",
    SampleStatus.TRUNCATED: "length",
    SampleStatus.FAILED: "error",
}


@dataclass(frozen=True, slots=True)
class Played:
    """An episode, and SkyRL's id for it."""

    id: TrajectoryID
    """SkyRL's id, whose `instance_id` is the group."""
    trajectory: Trajectory

    @property
    def is_graded(self) -> bool:
        """Whether the episode has a reward."""
        return self.trajectory.reward is not None and not self.trajectory.masked


@dataclass(frozen=True, slots=True)
class _Row:
    played: Played
    sample: TrainingSample
    is_last: bool
    is_trained: bool

    @property
    def mask(self) -> list[int]:
        mask = self.sample.loss_mask
        return list(mask) if self.is_trained and mask else [0] * max(1, len(mask))


class SweGenerator(GeneratorInterface):
    """Plays the prompts of a batch as episodes of a job, at most `spec.parallelism` at once."""

    def __init__(
        self, job: RolloutJob, *, engine: TokenEngine | None = None, column: str = "instance_id"
    ) -> None:
        """`column` of SkyRL's dataset names the job's task; `engine` is that of `job.session`."""
        self._job = job
        self._open = partial(trainer_session, job, engine=engine)
        self._column = column

    async def generate(self, input_batch: GeneratorInput) -> GeneratorOutput:
        """Play an episode for each prompt; the rows are in the order of the prompts.

        Raises UsageError for prompts without a task of the job and for a batch without a grade, and
        FailureRateError if too many of the last episodes failed.
        """
        session = await held(self, self._open)
        ids, extras = input_batch["trajectory_ids"], input_batch["env_extras"]
        if ids is None or extras is None or any(self._column not in each for each in extras):
            raise UsageError(
                f"SkyRL's dataset has no column {self._column}",
                why="it names the task of the job that a prompt stands for",
                fix="add it, or name another: SweGenerator(job, column=…)",
            )
        sampling = sampling_of(input_batch["sampling_params"], self._job.spec.sampling)
        trajectories = await gather_all(
            session.run_sample(str(extra[self._column]), sampling=sampling) for extra in extras
        )
        return generator_output(
            [Played(each, found) for each, found in zip(ids, trajectories, strict=True)]
        )

    async def aclose(self) -> None:
        """Close the job's session."""
        await let_go([self])


def sampling_of(params: Mapping[str, Any] | None, default: Sampling) -> Sampling:
    """Return the job's sampling, overridden by what SkyRL asks for."""
    names = ("temperature", "top_p", "top_k", "min_p")
    given = {name: params[name] for name in names if params and params.get(name) is not None}
    return default.model_validate({**default.model_dump(), **given})


def generator_output(played: Sequence[Played]) -> GeneratorOutput:
    """Return the rows of episodes in step-wise form, with those of a group next to each other.

    A group with one remaining episode has no baseline and is not trained on; a group with none
    becomes a masked row. Raises UsageError if no episode of several groups was graded.
    """
    groups = [list(group) for _, group in groupby(played, key=lambda each: each.id.instance_id)]
    failed = [each.trajectory for each in played if not each.is_graded]
    if len(failed) == len(played) and len(groups) > 1:
        why = next((each.failure.message for each in failed if each.failure), "")
        raise UsageError(f"none of {len(played)} episodes was graded", why=why)
    rows = [row for group in groups for row in _rows(group)]
    samples, timings = [row.sample for row in rows], [row.played.trajectory.timing for row in rows]
    return {
        "prompt_token_ids": [list(each.prompt_ids or (0,)) for each in samples],
        "response_ids": [list(each.response_ids or (0,)) for each in samples],
        "rewards": [0.0 if each.reward is None else each.reward for each in samples],
        "loss_masks": [row.mask for row in rows],
        "stop_reasons": [_STOP_REASONS[each.status] for each in samples],
        "rollout_logprobs": [list(each.logprobs or (0.0,)) for each in samples],
        "trajectory_ids": [row.played.id for row in rows],
        "is_last_step": [row.is_last for row in rows],
        "rollout_metrics": {"generate/failed_episodes": len(failed)},
        "rollout_expert_indices": None,
        "trajectory_generation_times": [each.total_s for each in timings],
        "trajectory_time_splits": {
            "llm": [each.engine_s for each in timings],
            "env": [each.total_s - each.engine_s for each in timings],
        },
    }


def _rows(group: Sequence[Played]) -> Iterator[_Row]:
    graded = [each for each in group if each.is_graded]
    is_trained = len(graded) > 1 or len(graded) == len(group)
    for played in graded or group[:1]:
        samples = training_samples(played.trajectory)
        for sample in samples:
            yield _Row(played, sample, sample is samples[-1], is_trained)
