"""slime: a generate function that plays episodes of a job, and advantages by group.

    --custom-generate-function-path swe_rollout.integrations.slime.generate
    --custom-reward-post-process-path swe_rollout.integrations.slime.reward_post_process
    --dynamic-sampling-filter-path swe_rollout.integrations.slime.has_reward

The contract is that of slime 624b824a8, also with `--partial-rollout` and fully async;
docs/how-to/slime.md says how it is set up. Of slime, only the flag is read that says whether its
engines are being stopped.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
import sys
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Final

import structlog

from swe_rollout.errors import UsageError
from swe_rollout.integrations import slime_async
from swe_rollout.integrations.parking import RunningEpisode
from swe_rollout.integrations.slime_samples import fill, fill_parked, notes_of, reset, say
from swe_rollout.integrations.slime_session import SlimeSession, job_of, open_slime, router_of
from swe_rollout.launcher.sync import held
from swe_rollout.training.groups import Scale, Score, grpo_advantages
from swe_rollout.training.sample_bounds import FailureRateError
from swe_rollout.training.samples import training_samples
from swe_rollout.types.trajectory import Trajectory

__all__ = ["generate", "has_reward", "reward_post_process"]
log = structlog.get_logger()
_NORMALIZED: Final = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
_SCALED: Final = ("grpo", "gspo", "cispo")


async def generate(
    args: Any,
    sample: Any,
    sampling_params: Mapping[str, Any],
    evaluation: bool = False,
) -> Any:
    """Play the task that `sample.metadata["instance_id"]` names, and fill the sample.

    Return it, or a list with one `rollout_id` where the episode has several branches. It is ABORTED
    without a reward where infrastructure failed. Where slime stops it is ABORTED with its tokens so
    far, and under `--partial-rollout` goes on in the same sandbox when it comes back. Raises
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
    """Go on with the sample's parked episode, or start one."""
    notes = notes_of(sample)
    if ticket := notes.get("ticket"):
        if (parked := slime.episodes.take(ticket)) is not None:
            return parked
        reset(sample, note="its parked episode had ended: another attempt from the start")
    elif notes or sample.response_length:
        reset(sample, note=f"another attempt after {notes.get('failure', 'an abort')}")
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
    """Return the sample of an episode that slime stopped: it waits, or it ends."""
    tokens = episode.lane.tokens
    if goes_on and any(tokens.loss_mask):
        ticket = secrets.token_hex(8)
        slime.episodes.park(ticket, episode)
        fill_parked(sample, tokens, ticket=ticket, renderer=slime.session.renderer)
        return sample
    slime.episodes.end(episode)
    reset(sample, note=None)
    sample.status = type(sample).Status.ABORTED
    return sample


def _finish(
    slime: SlimeSession, args: Any, sample: Any, trajectory: Trajectory, *, evaluation: bool
) -> Any:
    main, *others = training_samples(trajectory)
    if list(main.token_ids[: len(sample.tokens)]) != sample.tokens:
        # Its sandbox was lost, and the job's retry played the task from the start.
        reset(sample, note="another attempt took the place of the tokens so far")
    is_masked = getattr(args, "mask_offpolicy_in_partial_rollout", False)
    masked = sample.response_length if is_masked else 0
    key = getattr(args, "eval_reward_key", None) if evaluation else None
    if sample.rollout_id is None:
        sample.rollout_id = sample.index
    if others and getattr(args, "partial_rollout", False):
        # slime gives whole groups back, and takes no lists in them.
        log.warning("branches_left_out", episode=main.rollout_id, branches=len(others))
        say(sample, branches_left_out=len(others))
        others = []
    samples = [sample, *(copy.deepcopy(sample) for _ in others)]
    for each, made in zip(samples, (main, *others), strict=True):
        fill(
            each,
            made,
            trajectory,
            renderer=slime.session.renderer,
            reward_key=key or getattr(args, "reward_key", None),
        )
    for position in range(min(masked, sample.response_length)):
        sample.loss_mask[position] = 0
    return samples if others else sample


def _is_stopped(args: Any) -> bool:
    """Whether slime is aborting its generations, at the end of a step."""
    module = sys.modules.get("slime.rollout.sglang_rollout")
    return module is not None and bool(module.GenerateState(args).aborted)


def reward_post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the raw reward of each sample, and its advantage within its group.

    A group is what shares `group_index`, of any size: a sample without reward is in no mean, and
    the samples of one `rollout_id` count once. What has no reward has advantage 0, and the mean of
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
    """Whether a group has a sample with a reward: the filter that slime needs for the others.

    slime's own metrics stop at a group in which all failed.
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
