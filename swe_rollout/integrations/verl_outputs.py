"""Turn an episode into the outputs of verl's agent loops."""

from __future__ import annotations

from typing import Any

import structlog

from swe_rollout.errors import SweRolloutError
from swe_rollout.integrations.columns import Columns
from swe_rollout.integrations.needed import needed
from swe_rollout.integrations.verl_engine import Seen
from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

with needed("verl"):
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput


log = structlog.get_logger()


class RolloutFailedError(SweRolloutError):
    """Infrastructure broke an episode, and verl has no place for one without a reward."""


def outputs(
    trajectory: Trajectory,
    seen: Seen,
    *,
    filler: int,
    has_logprobs: bool,
    takes_lists: bool,
) -> Any:
    """Return the `AgentLoopOutput` of an episode, or where verl takes lists, one for each branch.

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
    # verl takes the reward, and the baseline of the group, from the last one.
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
            # The same keys in every sample: verl reads those of the first.
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
