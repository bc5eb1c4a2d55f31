"""verl 0.9.1: an agent loop that plays episodes of a job on verl's own servers.

`verl_agent.yaml` beside this file registers it as `swe_rollout`; docs/how-to/verl.md says how it is
set up. verl's trainer (v1) takes an output for each branch, and none for a failed episode: its
group continues without it. The older trainer takes exactly one, so a failure stops it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.integrations.adapter import Columns, needed
from swe_rollout.integrations.trainer_session import JOB_VARIABLE, TrainerSession, trainer_session
from swe_rollout.integrations.verl_engine import Seen, VerlEngine
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import held
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

with needed("verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, register
with needed("verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
log = structlog.get_logger()


@register("swe_rollout")
class SweRolloutLoop(AgentLoopBase):
    """Plays one episode per sample; verl creates one instance for each."""

    def __init__(self, *args: Any, job: str | None = None, **kwargs: Any) -> None:
        """Use `job` as the job file, by default the one that SWE_ROLLOUT_JOB names."""
        super().__init__(*args, **kwargs)
        self._job = job or os.environ.get(JOB_VARIABLE, "")

    async def run(self, sampling_params: Mapping[str, Any], **kwargs: Any) -> Any:
        """Play the task that `extra_info["instance_id"]` names.

        Return its `AgentLoopOutput`, or under verl's v1 trainer a list with one for each branch,
        empty if infrastructure failed. Raises UsageError if the task can't be played,
        RolloutFailedError if verl takes no empty list, and FailureRateError if too many of this
        worker's last episodes failed.
        """
        if not self._job:
            raise UsageError(
                "verl names no rollout job",
                fix=f"set {JOB_VARIABLE}=/path/to/job.yaml for the agent loop workers, or `job` in "
                "the file of agent.agent_loop_config_path",
            )
        key = ("verl", self._job, id(self.server_manager))
        trainer, engine = await held(key, self._open)
        instance = _instance_of(kwargs)
        episode = trainer.next_sample(instance)
        sampling = Sampling(
            temperature=sampling_params.get("temperature", 1.0),
            top_p=sampling_params.get("top_p", 1.0),
            top_k=sampling_params.get("top_k", -1),
        )
        lane = engine.begin(episode)
        try:
            trajectory = await trainer.run_episode(
                instance, sample=episode.sample, sampling=sampling
            )
        finally:
            engine.end(episode)
        return outputs(
            trajectory,
            lane.seen,
            filler=trainer.session.renderer.stop_token_ids[0],
            has_logprobs=bool(sampling_params.get("logprobs")),
            # Only workers of the v1 trainer number the sessions of a prompt.
            takes_lists="session_id" in kwargs,
        )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[TrainerSession, VerlEngine]]:
        rollout = self.rollout_config
        engine = VerlEngine(
            self.server_manager,
            prompt_tokens=rollout.prompt_length,
            response_tokens=rollout.response_length,
            tokenizer=self.tokenizer.name_or_path,
            context_tokens=rollout.get("max_model_len"),
        )
        async with trainer_session(RolloutJob.from_yaml(self._job), engine=engine) as session:
            yield session, engine


def _instance_of(row: Mapping[str, Any]) -> str:
    extra = row.get("extra_info") or {}
    instance = row.get("instance_id") or extra.get("instance_id")
    if not instance:
        raise UsageError(
            "verl's row names no task",
            why="its extra_info has no instance_id",
            fix='give each row of data.train_files "extra_info": {"instance_id": …}',
        )
    return str(instance)


class RolloutFailedError(SweRolloutError):
    """Infrastructure broke an episode, and verl accepts none without a reward."""


def outputs(
    trajectory: Trajectory,
    seen: Seen,
    *,
    filler: int,
    has_logprobs: bool,
    takes_lists: bool,
) -> Any:
    """Return the `AgentLoopOutput` of an episode, or one per branch if verl takes lists.

    A failure is an empty list there, and raises RolloutFailedError elsewhere.
    """
    main, *others = training_samples(trajectory)
    if main.status is SampleStatus.FAILED:
        if takes_lists:
            log.warning("left_out", episode=main.rollout_id, why=str(trajectory.failure))
            return []
        why = trajectory.failure.message if trajectory.failure else "it was cancelled"
        raise RolloutFailedError(
            f"{main.rollout_id} failed in attempt {trajectory.attempt}",
            why=why,
            fix="train with trainer.use_v1=True, which leaves it out, or raise spec.retry.attempts",
        )
    if others and not takes_lists:
        log.warning("branches_left_out", episode=main.rollout_id, branches=len(others))
        others = []
    # verl takes the reward and the group's baseline from the last one.
    made = [
        _output(each, trajectory, seen, filler=filler, has_logprobs=has_logprobs)
        for each in (*others, main)
    ]
    return made if takes_lists else made[-1]


def _output(
    sample: TrainingSample, trajectory: Trajectory, seen: Seen, *, filler: int, has_logprobs: bool
) -> Any:
    columns = Columns.of(sample, filler=filler)
    experts = seen.experts.get(sample.branch)
    stop = trajectory.stop_reason
    return AgentLoopOutput(
        prompt_ids=columns.prompt_ids,
        response_ids=columns.response_ids,
        response_mask=columns.loss_mask,
        response_logprobs=columns.logprobs if has_logprobs else None,
        routed_experts=None if experts is None else experts[: len(columns.token_ids)],
        reward_score=sample.reward,
        num_turns=2 * sample.turns,
        metrics=_metrics(trajectory, seen) if sample.branch == 0 else AgentLoopMetrics(),
        extra_fields={
            "turn_scores": [],
            "tool_rewards": [],
            "min_global_steps": seen.first_step,
            "max_global_steps": seen.last_step,
            # Give every sample the same keys: verl reads those of the first.
            "reward_extra_info": {"acc": float(trajectory.resolved)},
            "episode": sample.rollout_id,
            "stop_reason": None if stop is None else stop.value,
        },
    )


def _metrics(trajectory: Trajectory, seen: Seen) -> Any:
    timing = trajectory.timing
    return AgentLoopMetrics(
        generate_sequences=timing.engine_s,
        tool_calls=timing.tools_s,
        compute_score=timing.grade_s,
        num_preempted=-1 if seen.preempted is None else seen.preempted,
    )
