"""slime: a generate function that plays episodes of a job, and advantages by group.

    --custom-generate-function-path swe_rollout.integrations.slime.generate
    --custom-reward-post-process-path swe_rollout.integrations.slime.reward_post_process
    --dynamic-sampling-filter-path swe_rollout.integrations.slime.has_reward

This implements the contract of slime 624b824a8, including `--partial-rollout` and fully async;
docs/how-to/slime.md says how to set it up. It reads only one thing of slime: the flag that says
whether its engines are being stopped.
"""

from __future__ import annotations

import asyncio
import copy
import math
import secrets
import sys
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import structlog

from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import UsageError
from swe_rollout.integrations import slime_async
from swe_rollout.integrations.adapter import Columns, runs
from swe_rollout.integrations.parking import RunningEpisode, TokensSoFar
from swe_rollout.integrations.slime_session import SlimeSession, job_of, open_slime, router_of
from swe_rollout.launcher.sync import held
from swe_rollout.tokens.replay import ExpertShape, RoutedExperts
from swe_rollout.training.groups import Scale, Score, grpo_advantages
from swe_rollout.training.sample_bounds import FailureRateError
from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["generate", "has_reward", "reward_post_process"]
log = structlog.get_logger()
NOTES: Final = "swe_rollout"
"""The key of our notes on a sample in its metadata."""
_STATUS: Final = {
    SampleStatus.COMPLETED: "COMPLETED",
    SampleStatus.TRUNCATED: "TRUNCATED",
    SampleStatus.FAILED: "ABORTED",
}
_NORMALIZED: Final = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
_SCALED: Final = ("grpo", "gspo", "cispo")


async def generate(
    args: Any,
    sample: Any,
    sampling_params: Mapping[str, Any],
    evaluation: bool = False,
) -> Any:
    """Play the task that `sample.metadata["instance_id"]` names, and fill the sample.

    Return it, or a list with one `rollout_id` if the episode has several branches. It is ABORTED
    without a reward if infrastructure failed. If slime stops, it is ABORTED with its tokens so far,
    and under `--partial-rollout` continues in the same sandbox when it comes back. Raises
    UsageError for a job or a sample that can't be played, and FailureRateError when too many of the
    last episodes failed.
    """
    slime = await held(
        ("slime", job_of(args), router_of(args)),
        partial(open_slime, args, stopped=partial(_is_stopped, args)),
    )
    episode = _begin(slime, sample, sampling_params)
    try:
        trajectory = await episode.result(slime.engine)
    except asyncio.CancelledError:
        slime.episodes.end(episode)
        raise
    except FailureRateError as error:
        slime_async.note(args, error)
        raise
    is_partial = bool(getattr(args, "partial_rollout", False))
    if trajectory is None:
        return _stop(slime, sample, episode, goes_on=is_partial and not evaluation)
    return _finish(slime, args, sample, trajectory, evaluation=evaluation)


def _begin(slime: SlimeSession, sample: Any, sampling_params: Mapping[str, Any]) -> RunningEpisode:
    """Continue the sample's parked episode, or start one."""
    notes = _notes_of(sample)
    if ticket := notes.get("ticket"):
        if (parked := slime.episodes.take(ticket)) is not None:
            return parked
        _reset(sample, note="its parked episode had ended: another attempt from the start")
    elif notes or sample.response_length:
        _reset(sample, note=f"another attempt after {notes.get('failure', 'an abort')}")
    instance = (sample.metadata or {}).get("instance_id")
    if not isinstance(instance, str):
        raise UsageError(
            f"slime's sample {sample.index} names no task",
            why="its metadata has no instance_id",
            fix='give each row of the prompt data {"metadata": {"instance_id": …}}, and slime '
            "--metadata-key metadata",
        )
    return slime.start(instance, sampling_params)


def _stop(slime: SlimeSession, sample: Any, episode: RunningEpisode, *, goes_on: bool) -> Any:
    """Return the sample of an episode that slime stopped; the episode is parked or ended."""
    tokens = episode.lane.tokens
    if goes_on and any(tokens.loss_mask):
        ticket = secrets.token_hex(8)
        slime.episodes.park(ticket, episode)
        _fill_parked(sample, tokens, ticket=ticket, renderer=slime.session.renderer)
        return sample
    slime.episodes.end(episode)
    _reset(sample, note=None)
    sample.status = type(sample).Status.ABORTED
    return sample


def _finish(
    slime: SlimeSession, args: Any, sample: Any, trajectory: Trajectory, *, evaluation: bool
) -> Any:
    main, *others = training_samples(trajectory)
    if list(main.token_ids[: len(sample.tokens)]) != sample.tokens:
        # Its sandbox was lost, and the job's retry played the task from the start.
        _reset(sample, note="another attempt took the place of the tokens so far")
    is_masked = getattr(args, "mask_offpolicy_in_partial_rollout", False)
    masked = sample.response_length if is_masked else 0
    key = getattr(args, "eval_reward_key", None) if evaluation else None
    if sample.rollout_id is None:
        sample.rollout_id = sample.index
    if others and getattr(args, "partial_rollout", False):
        # slime gives back whole groups, and accepts no lists in them.
        log.warning("branches_left_out", episode=main.rollout_id, branches=len(others))
        _say(sample, branches_left_out=len(others))
        others = []
    recording = slime.session.context.agent.recording
    samples = [sample, *(copy.deepcopy(sample) for _ in others)]
    for each, made in zip(samples, (main, *others), strict=True):
        _fill(
            each,
            made,
            trajectory,
            renderer=slime.session.renderer,
            reward_key=key or getattr(args, "reward_key", None),
        )
        if recording and recording.experts:
            rows = trajectory.samples[made.branch].routed_experts
            each.rollout_routed_experts = _experts(args, each, rows, recording.experts)
    for position in range(min(masked, sample.response_length)):
        sample.loss_mask[position] = 0
    return samples if others else sample


def _is_stopped(args: Any) -> bool:
    """Whether slime is aborting its generations, as it does at the end of a step."""
    module = sys.modules.get("slime.rollout.sglang_rollout")
    return module is not None and bool(module.GenerateState(args).aborted)


def reward_post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the raw reward of each sample, and its advantage within its group.

    Samples that share `group_index` are a group of any size. One without reward enters no mean, and
    the samples of one `rollout_id` count once. Without reward, one has advantage 0, and the mean of
    its group as raw reward, which is only logged: it moves neither weights nor curves.
    """
    scores = [
        Score(repr(_rollout(each)), repr(_group(args, each)), _score(args, each))
        for each in samples
    ]
    means = _means(scores)
    overall = fmean(means.values()) if means else 0.0
    raw = [
        means.get(each.group_id, overall) if each.reward is None else each.reward for each in scores
    ]
    advantages = (0.0 if each is None else each for each in _advantages(args, scores))
    return raw, list(advantages)


def _means(scores: Sequence[Score]) -> dict[str, float]:
    """Return the mean reward of each group that has one, each rollout counted once."""
    groups: dict[str, dict[str, float]] = {}
    for each in scores:
        if each.reward is not None:
            groups.setdefault(each.group_id, {})[each.rollout_id] = each.reward
    return {group: fmean(rewards.values()) for group, rewards in groups.items()}


def _advantages(args: Any, scores: Sequence[Score]) -> Sequence[float | None]:
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in _NORMALIZED or not getattr(args, "rewards_normalization", True):
        return [each.reward for each in scores]
    scaled = estimator in _SCALED and getattr(args, "grpo_std_normalization", True)
    scale = Scale.SAMPLE_STD if scaled else Scale.NONE
    return grpo_advantages(scores, scale=scale)


def has_reward(args: Any, samples: Sequence[Any], **_: Any) -> bool:
    """Whether a group has a sample with a reward: slime needs this filter for the others.

    slime's own metrics fail on a group in which all samples failed.
    """
    flat = [
        each for sample in samples for each in (sample if isinstance(sample, list) else [sample])
    ]
    return any(_score(args, each) is not None for each in flat)


def _score(args: Any, sample: Any) -> float | None:
    key = getattr(args, "reward_key", None)
    reward = sample.reward[key] if key and isinstance(sample.reward, dict) else sample.reward
    return None if reward is None else float(reward)


def _group(args: Any, sample: Any) -> Hashable:
    if sample.group_index is not None:
        return ("group", sample.group_index)
    size = getattr(args, "n_samples_per_prompt", None)
    return ("index", sample.index // size) if size and sample.index is not None else ("all",)


def _rollout(sample: Any) -> Hashable:
    for name in ("rollout_id", "index"):
        if (found := getattr(sample, name)) is not None:
            return (name, found)
    return ("object", id(sample))


def _notes_of(sample: Any) -> dict[str, Any]:
    """Return the notes on a sample from when it was last returned."""
    notes: dict[str, Any] = (sample.metadata or {}).get(NOTES, {})
    return notes


def _fill(
    sample: Any,
    made: TrainingSample,
    trajectory: Trajectory,
    *,
    renderer: Renderer,
    reward_key: str | None,
) -> None:
    """Fill a sample from a branch of an episode; a failed one has no reward and no weight."""
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
    turns = [turn for turn in trajectory.turns if turn.branch == made.branch]
    sample.prefix_cache_info.cached_tokens = sum(turn.cached_tokens for turn in turns)
    sample.prefix_cache_info.total_prompt_tokens = sum(turn.request.length for turn in turns)
    timing, stop, failure = trajectory.timing, trajectory.stop_reason, trajectory.failure
    sample.non_generation_time = timing.start_s + timing.tools_s + timing.grade_s
    _say(
        sample,
        ticket=None,
        episode=made.rollout_id,
        branch=made.branch,
        turns=made.turns,
        tool_calls=sum(len(turn.tool_calls) for turn in turns),
        stop_reason=None if stop is None else stop.value,
        failure=None if failure is None else f"{failure.type}: {failure.message}",
    )


def _experts(
    args: Any, sample: Any, rows: RoutedExperts | None, shape: ExpertShape
) -> NDArray[np.int32]:
    """Return the experts of all tokens but the last, which was never read.

    slime replays a batch only if each of its samples has them, failed ones too. Where they are
    unknown, they are several, as in slime's own padding: it refuses a layer of zeros.
    """
    size = (len(sample.tokens) - 1, shape.layers, shape.topk)
    count = getattr(args, "num_experts", None) or shape.topk
    experts = np.arange(math.prod(size), dtype=np.int32).reshape(size) % count
    if rows is not None:
        known = rows.array()[: len(experts)]
        experts[: len(known)] = known
    return experts


def _fill_parked(sample: Any, tokens: TokensSoFar, *, ticket: str, renderer: Renderer) -> None:
    """Fill a sample with the tokens so far of an episode that is parked under a ticket."""
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
    _say(sample, ticket=ticket)


def _reset(sample: Any, *, note: str | None) -> None:
    """Empty a sample, for an episode that starts again."""
    sample.tokens, sample.response, sample.response_length = [], "", 0
    sample.loss_mask = sample.rollout_log_probs = sample.rollout_routed_experts = None
    sample.weight_versions, sample.reward = [], None
    if _notes_of(sample).get("failure"):
        sample.remove_sample = False
    sample.metadata = {key: v for key, v in (sample.metadata or {}).items() if key != NOTES}
    if note:
        _say(sample, note=note)


def _say(sample: Any, **notes: object) -> None:
    """Add to the notes in the metadata; samples of a group may share that dictionary."""
    known = {**_notes_of(sample), **notes}
    said = {key: value for key, value in known.items() if value is not None}
    sample.metadata = {**(sample.metadata or {}), NOTES: said}


def _set(sample: Any, columns: Columns, renderer: Renderer) -> None:
    sample.tokens = columns.token_ids
    sample.response = renderer.decode(columns.response_ids)
    sample.response_length = len(columns.response_ids)
    sample.loss_mask = columns.loss_mask
    sample.rollout_log_probs = columns.logprobs
