"""TrainingSample: one branch of an episode in the columns that trainers share.

Every trainer's adapter starts from these: prompt, mask and logprobs are cut in one place.
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
    """The policy ended it, or was stopped for its behaviour, such as repeating itself."""
    TRUNCATED = "truncated"
    """A limit on turns, tokens or time ended it. It is graded like any other."""
    FAILED = "failed"
    """Infrastructure failed, or it was cancelled: it has no reward, and must not be trained on."""


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One branch of an episode. All columns of the response have the same length."""

    rollout_id: str
    """The episode, `job/instance/sample`; its branches share this id and the reward."""
    group_id: str
    """The task, `job/instance`, whose samples a trainer compares."""
    branch: int
    """The branch; 0 is the main branch."""
    prompt_ids: tuple[int, ...]
    """All tokens before the first turn."""
    response_ids: tuple[int, ...]
    """The sampled tokens, and those that the harness wrote between them."""
    loss_mask: tuple[int, ...]
    """1 where the policy sampled the token of the response; 0 for what a fork inherited, unless
    `spec.fork.trainInherited` says so."""
    logprobs: tuple[float, ...]
    """Logprobs of the response in nats; 0.0 where the mask is 0."""
    weight_versions: tuple[str | None, ...]
    """Weight versions of the response; None where the mask is 0 or the engine has none."""
    temperatures: tuple[float, ...]
    """Temperatures of the response; 1.0 where the mask is 0 or the record has none."""
    reward: float | None
    """The reward; None if not graded, which must be neither trained on nor read as 0."""
    status: SampleStatus
    turns: int
    """Number of turns in this branch."""

    def __repr__(self) -> str:
        reward = "no reward" if self.reward is None else f"reward {self.reward:g}"
        size = f"{len(self.prompt_ids)}+{len(self.response_ids)} tokens"
        return f"<TrainingSample {self.rollout_id}#{self.branch}: {self.status}, {reward}, {size}>"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Token ids of prompt and response."""
        return self.prompt_ids + self.response_ids

    @property
    def is_trainable(self) -> bool:
        """Whether it has a reward and sampled tokens."""
        return self.reward is not None and any(self.loss_mask)


def training_samples(trajectory: Trajectory) -> tuple[TrainingSample, ...]:
    """Return a sample for each branch with sampled tokens, the main branch first.

    An episode that failed or sampled nothing becomes one sample that can't be trained on, so that
    trainers can count it. Raises UsageError for an episode over a chat API, which has no tokens.
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
