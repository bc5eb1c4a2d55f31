"""What trainers add to a session: numbers of their own, and an end to failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swe_rollout import RolloutJob
from swe_rollout.integrations.trainer_session import (
    BLOCK,
    REFILLS,
    TrainerSession,
    block_by_chance,
    trainer_session,
)
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.sample_bounds import FailureRateError
from unit.integrations.rollouts import SUBMIT, Policy, hashed_model, sandboxes, write_job


@asynccontextmanager
async def opened(folder: Path, **job: object) -> AsyncIterator[TrainerSession]:
    policy = Policy({0: [SUBMIT]}, {"7": hashed_model(1)})
    path = write_job(folder, **job)
    async with trainer_session(RolloutJob.from_yaml(path), engine=policy) as session:
        yield session


async def test_sessions_number_their_samples_in_blocks_of_their_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        played = [await each.run_episode("one") for each in (first, first, second)]

    blocks = [each.episode.sample // BLOCK for each in played]
    assert blocks[0] == blocks[1] != blocks[2]
    assert [each.episode.sample % BLOCK for each in played] == [0, 1, 0]


def test_a_block_by_chance_is_a_block() -> None:
    found = {block_by_chance() for _ in range(50)}
    assert len(found) == 50
    assert all(each % BLOCK == 0 for each in found)


async def test_a_sample_that_failed_is_replaced_by_another(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        sandboxes().refused = REFILLS
        played = await session.run_sample("one", sampling=Sampling(temperature=0.5))

    assert played.failure is None
    assert played.episode.sample % BLOCK == REFILLS


async def test_too_many_failures_stop_it_for_good(tmp_path: Path) -> None:
    """A trainer that goes on after the error starts no sandbox any more."""
    async with opened(tmp_path) as session:
        sandboxes().refused = 10**6
        for _ in range(2):
            assert (await session.run_episode("one")).failure is not None
        with pytest.raises(FailureRateError, match="3 of the last 3 samples failed"):
            await session.run_episode("one")
        left = sandboxes().refused = 10**6
        for play in (session.run_episode, session.run_sample, session.run_group):
            with pytest.raises(FailureRateError, match="sandbox 3"):
                await play("one")
        assert sandboxes().refused == left


async def test_the_samples_that_a_group_replaced_count_as_failures(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        sandboxes().refused = 2
        group = await session.run_group("one", samples=4)
        assert (len(group.trajectories), len(group.failed)) == (4, 2)
        sandboxes().refused = 2
        with pytest.raises(FailureRateError, match="4 of the last 12 samples failed"):
            await session.run_group("one", samples=4)


async def test_the_bound_is_the_jobs_budget(tmp_path: Path) -> None:
    async with opened(tmp_path, failureBudget={"maxMaskedFraction": 1}) as session:
        sandboxes().refused = 20
        for _ in range(20):
            assert (await session.run_episode("one")).failure is not None
