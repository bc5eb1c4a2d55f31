"""Fill slime's samples: from a finished episode, from a parked one, and empty again."""

from __future__ import annotations

from typing import Any, Final

from swe_rollout.agent.renderer import Renderer
from swe_rollout.integrations.columns import Columns, runs
from swe_rollout.integrations.parking import TokensSoFar
from swe_rollout.training.samples import SampleStatus, TrainingSample
from swe_rollout.types.trajectory import Trajectory

NOTES: Final = "swe_rollout"
"""The key of what is said of a sample in its metadata."""
_STATUS: Final = {
    SampleStatus.COMPLETED: "COMPLETED",
    SampleStatus.TRUNCATED: "TRUNCATED",
    SampleStatus.FAILED: "ABORTED",
}


def notes_of(sample: Any) -> dict[str, Any]:
    """Return what was said of a sample when it was returned last."""
    notes: dict[str, Any] = (sample.metadata or {}).get(NOTES, {})
    return notes


def fill(
    sample: Any,
    made: TrainingSample,
    trajectory: Trajectory,
    *,
    renderer: Renderer,
    reward_key: str | None,
) -> None:
    """Fill a sample from one branch of an episode; one that failed has no reward and no weight."""
    columns = Columns.of(made, filler=renderer.stop_token_ids[0])
    _set(sample, columns, renderer)
    failed = made.status is SampleStatus.FAILED
    if failed:
        sample.loss_mask = [0] * len(columns.loss_mask)
    sample.remove_sample = sample.remove_sample or failed
    sample.status = type(sample).Status[_STATUS[made.status]]
    reward = None if failed else made.reward
    sample.reward = {reward_key: reward} if reward_key and reward is not None else reward
    sample.weight_versions = runs(made.weight_versions)
    experts = trajectory.samples[made.branch].routed_experts
    sample.rollout_routed_experts = columns.experts(experts, last=False)
    turns = [turn for turn in trajectory.turns if turn.branch == made.branch]
    sample.prefix_cache_info.cached_tokens = sum(turn.cached_tokens for turn in turns)
    sample.prefix_cache_info.total_prompt_tokens = sum(turn.request.length for turn in turns)
    timing, stop, failure = trajectory.timing, trajectory.stop_reason, trajectory.failure
    sample.non_generation_time = timing.start_s + timing.tools_s + timing.grade_s
    say(
        sample,
        ticket=None,
        episode=made.rollout_id,
        branch=made.branch,
        turns=made.turns,
        tool_calls=sum(len(turn.tool_calls) for turn in turns),
        stop_reason=None if stop is None else stop.value,
        failure=None if failure is None else f"{failure.type}: {failure.message}",
    )


def fill_parked(sample: Any, tokens: TokensSoFar, *, ticket: str, renderer: Renderer) -> None:
    """Fill a sample with the tokens so far of an episode that waits under a ticket."""
    columns = Columns(
        tokens.prompt_ids.copy(),
        tokens.response_ids.copy(),
        tokens.loss_mask.copy(),
        tokens.logprobs.copy(),
    )
    _set(sample, columns, renderer)
    sample.weight_versions = tokens.versions.copy()
    sample.status = type(sample).Status.ABORTED
    sample.reward = None
    say(sample, ticket=ticket)


def reset(sample: Any, *, note: str | None) -> None:
    """Empty a sample, for an episode from the start."""
    sample.tokens, sample.response, sample.response_length = [], "", 0
    sample.loss_mask = sample.rollout_log_probs = sample.rollout_routed_experts = None
    sample.weight_versions, sample.reward = [], None
    if notes_of(sample).get("failure"):
        sample.remove_sample = False
    sample.metadata = {key: v for key, v in (sample.metadata or {}).items() if key != NOTES}
    if note:
        say(sample, note=note)


def say(sample: Any, **notes: object) -> None:
    """Add to what the metadata says; samples of a group may share that dictionary."""
    known = {**notes_of(sample), **notes}
    said = {key: value for key, value in known.items() if value is not None}
    sample.metadata = {**(sample.metadata or {}), NOTES: said}


def _set(sample: Any, columns: Columns, renderer: Renderer) -> None:
    sample.tokens = columns.token_ids
    sample.response = renderer.decode(columns.response_ids)
    sample.response_length = len(columns.response_ids)
    sample.loss_mask = columns.loss_mask
    sample.rollout_log_probs = columns.logprobs
