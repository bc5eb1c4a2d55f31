"""TrainingSample: one branch of an episode in the columns that trainers share.

Every adapter of a trainer starts from these: prompt, mask and logprobs are cut in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from swe_rollout.errors import UsageError
from swe_rollout.tokens.branch import Branch
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory

_LIMITS = frozenset(
    {
        StopReason.TURN_LIMIT,
        StopReason.TOKEN_LIMIT,
        StopReason.CONTEXT_FULL,
        StopReason.TIME_LIMIT,
    }
)


class SampleStatus(StrEnum):
    """How the episode of a sample ended."""

    COMPLETED = "completed"
    """The policy ended it, or was stopped for what it did, such as repeating itself."""
    TRUNCATED = "truncated"
    """A limit of turns, tokens or time ended it. It is graded like any other."""
    FAILED = "failed"
    """Infrastructure broke, or it was cancelled: it has no reward, and must not be trained on."""


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One branch of an episode. The columns of the response are equally long."""

    rollout_id: str
    """The episode, `job/instance/sample`; its branches share it, and its reward."""
    group_id: str
    """The task, `job/instance`: the samples that a trainer compares."""
    branch: int
    """0: the main branch."""
    prompt_ids: tuple[int, ...]
    """Everything in front of the first turn."""
    response_ids: tuple[int, ...]
    """Sampled tokens, and what the harness wrote between them."""
    loss_mask: tuple[int, ...]
    """1 where the policy sampled the token of the response; 0 on what a fork inherited, unless
    `spec.fork.trainInherited` says so."""
    logprobs: tuple[float, ...]
    """Logprobs of the response in nats; 0.0 where the mask is 0."""
    weight_versions: tuple[str | None, ...]
    """Weight versions of the response; None where the mask is 0 or the engine has none."""
    temperatures: tuple[float, ...]
    """Temperatures of the response; 1.0 where the mask is 0 or the record has none."""
    reward: float | None
    """The reward; None if not graded, which must not be trained on or read as 0."""
    status: SampleStatus
    turns: int
    """Turns in this branch."""

    def __repr__(self) -> str:
        reward = "no reward" if self.reward is None else f"reward {self.reward:g}"
        size = f"{len(self.prompt_ids)}+{len(self.response_ids)} tokens"
        return f"<TrainingSample {self.rollout_id}#{self.branch}: {self.status}, {reward}, {size}>"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and response."""
        return self.prompt_ids + self.response_ids

    @property
    def is_trainable(self) -> bool:
        """Whether it has a reward, and tokens that the policy sampled."""
        return self.reward is not None and any(self.loss_mask)


def training_samples(trajectory: Trajectory) -> tuple[TrainingSample, ...]:
    """Return a sample for each branch in which something was sampled, the main branch first.

    An episode that failed, or sampled nothing, is one sample that can't be trained on: trainers
    count it. Raises UsageError for an episode over a chat API, which has no tokens.
    """
    if trajectory.chat is not None:
        raise UsageError(
            f"{trajectory.episode} can't be trained on: it has no tokens",
            why=f"{trajectory.policy} is a chat API, which returns text alone",
            fix="play the job with a policy that samples tokens, such as sglang",
        )
    main, *_ = trained = trajectory.trained
    if trajectory.failure is not None:
        return (_sample(trajectory, main),)
    sampled = [branch for branch in trained if branch.sampled]
    return tuple(_sample(trajectory, branch) for branch in sampled or [main])


def _sample(trajectory: Trajectory, branch: Branch) -> TrainingSample:
    start = branch.prompt_length
    temperatures = (1.0 if each is None else each for each in branch.temperatures[start:])
    return TrainingSample(
        rollout_id=str(trajectory.episode),
        group_id=trajectory.episode.group,
        branch=branch.index,
        prompt_ids=branch.token_ids[:start],
        response_ids=branch.token_ids[start:],
        loss_mask=branch.loss_mask[start:],
        logprobs=tuple(0.0 if each is None else each for each in branch.logprobs[start:]),
        weight_versions=branch.weight_versions[start:],
        temperatures=tuple(temperatures),
        reward=None if trajectory.reward is None else trajectory.reward.value,
        status=_status(trajectory),
        turns=sum(turn.branch == branch.index for turn in trajectory.turns),
    )


def _status(trajectory: Trajectory) -> SampleStatus:
    stop = trajectory.stop_reason
    if trajectory.failure is not None or stop is StopReason.CANCELLED:
        return SampleStatus.FAILED
    return SampleStatus.TRUNCATED if stop in _LIMITS else SampleStatus.COMPLETED
