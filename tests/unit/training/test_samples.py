"""What a trainer takes from an episode: one sample for each branch, its columns cut alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.errors import Boundary, UsageError
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import SamplingUsed, Segment, SegmentKind
from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
from swe_rollout.types.episode import EpisodeId, Failure, StopReason, Timing
from swe_rollout.types.trajectory import ChatRecord, Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm

COOL = SamplingUsed(0.5, 1.0, -1, 0.0)
EPISODE = Trajectory(
    episode=EpisodeId("job", "task", 2),
    policy="sglang:m",
    token_ids=(1, 2, 3, 4, 5, 6),
    loss_mask=(0, 0, 1, 1, 0, 1),
    logprobs=(None, None, -0.25, -0.5, None, -1.0),
    segments=(
        Segment(SegmentKind.PROMPT, 0, 2, 0),
        Segment(SegmentKind.SAMPLED, 2, 3, 0, "7", COOL),
        Segment(SegmentKind.SAMPLED, 3, 4, 0, "8", COOL),
        Segment(SegmentKind.DELTA, 4, 5, 1),
        Segment(SegmentKind.SAMPLED, 5, 6, 1, "8"),
    ),
    turns=(),
    stop_reason=StopReason.SUBMITTED,
    patch="",
    verdict=None,
    reward=Reward((RewardTerm("resolved", 1.0),)),
    failure=None,
    attempt=1,
    seed=None,
    timing=Timing(),
    spec_digest="",
    software={},
    finished_at="",
)
SUB_AGENT = Branch(
    index=1,
    kind=BranchKind.SUB_AGENT,
    parent=0,
    parent_length=4,
    token_ids=(9, 8),
    loss_mask=(0, 1),
    logprobs=(None, -2.0),
    segments=(Segment(SegmentKind.PROMPT, 0, 1, 0), Segment(SegmentKind.SAMPLED, 1, 2, 0)),
)
UNUSED = replace(SUB_AGENT, index=2, token_ids=(9,), loss_mask=(0,), logprobs=(None,))
UNUSED = replace(UNUSED, segments=UNUSED.segments[:1])


def test_prompt_and_response_are_cut_where_the_first_turn_begins() -> None:
    assert training_samples(EPISODE) == (
        TrainingSample(
            rollout_id="job/task/2",
            group_id="job/task",
            branch=0,
            prompt_ids=(1, 2),
            response_ids=(3, 4, 5, 6),
            loss_mask=(1, 1, 0, 1),
            logprobs=(-0.25, -0.5, 0.0, -1.0),
            weight_versions=("7", "8", None, "8"),
            temperatures=(0.5, 0.5, 1.0, 1.0),
            reward=1.0,
            status=SampleStatus.COMPLETED,
            turns=0,
        ),
    )


def test_each_branch_in_which_something_was_sampled_is_a_sample_with_the_episodes_reward() -> None:
    main, sub = training_samples(replace(EPISODE, branches=(SUB_AGENT, UNUSED)))

    assert (sub.branch, sub.prompt_ids, sub.response_ids) == (1, (9,), (8,))
    assert sub.rollout_id == main.rollout_id
    assert sub.reward == main.reward == 1.0


def test_an_episode_that_failed_is_one_sample_without_a_reward() -> None:
    failed = replace(
        EPISODE,
        branches=(SUB_AGENT,),
        reward=None,
        stop_reason=None,
        failure=Failure(Boundary.SANDBOX, "SandboxError", "gone", retryable=True),
    )

    (sample,) = training_samples(failed)

    assert (sample.status, sample.reward, sample.is_trainable) == (SampleStatus.FAILED, None, False)
    assert sample.response_ids == (3, 4, 5, 6)


def test_an_episode_that_never_began_is_one_empty_sample() -> None:
    empty = replace(EPISODE, token_ids=(), loss_mask=(), logprobs=(), segments=(), reward=None)

    (sample,) = training_samples(empty)

    assert (sample.token_ids, sample.is_trainable) == ((), False)


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (StopReason.TURN_LIMIT, SampleStatus.TRUNCATED),
        (StopReason.TOKEN_LIMIT, SampleStatus.TRUNCATED),
        (StopReason.CONTEXT_FULL, SampleStatus.TRUNCATED),
        (StopReason.TIME_LIMIT, SampleStatus.TRUNCATED),
        (StopReason.REPEATED, SampleStatus.COMPLETED),
        (StopReason.FORMAT_ERRORS, SampleStatus.COMPLETED),
        (StopReason.FINISHED, SampleStatus.COMPLETED),
        (StopReason.CANCELLED, SampleStatus.FAILED),
    ],
)
def test_a_limit_truncates_and_what_the_policy_did_completes(
    stop: StopReason, status: SampleStatus
) -> None:
    (sample,) = training_samples(replace(EPISODE, stop_reason=stop))

    assert sample.status is status


def test_an_episode_over_a_chat_api_is_refused() -> None:
    with pytest.raises(UsageError, match="has no tokens"):
        training_samples(replace(EPISODE, chat=ChatRecord((), ())))
