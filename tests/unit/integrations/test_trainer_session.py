"""What trainers add to a session: numbers of their own, and an end to failures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from swe_rollout import RolloutJob
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError
from swe_rollout.integrations.trainer_session import (
    BLOCK,
    TrainerSession,
    block_by_chance,
    session_thread,
    trainer_session,
)
from swe_rollout.launcher.sync import LoopThread
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
        sandboxes().refused = 2
        played = await session.run_sample("one", sampling=Sampling(temperature=0.5))

    assert played.failure is None
    assert played.episode.sample % BLOCK == 2
    assert played.segments[1].sampling is not None
    assert played.segments[1].sampling.temperature == 0.5


async def test_after_the_last_refill_the_failure_is_returned(tmp_path: Path) -> None:
    async with opened(tmp_path, failureBudget={"maxMaskedFraction": 1}) as session:
        sandboxes().refused = 2 + 1
        assert (await session.run_sample("one")).failure is not None
        assert (await session.run_sample("one")).failure is None


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


@contextmanager
def beside(folder: Path) -> Iterator[LoopThread[TrainerSession]]:
    policy = Policy({0: [SUBMIT]}, {"7": hashed_model(1)})
    with session_thread(RolloutJob.from_yaml(write_job(folder)), engine=policy) as thread:
        yield thread


def test_the_processes_of_a_training_number_their_samples_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As accelerate tells them apart; the numbers of each are the same in every run."""
    samples = []
    for rank in (None, "0", "1", "7"):
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
        with beside(tmp_path) as thread:
            played = [thread.run(thread.value.run_sample("one")) for _ in "ab"]
        samples.append([each.episode.sample for each in played])

    assert samples == [[0, 1], [0, 1], [BLOCK, BLOCK + 1], [7 * BLOCK, 7 * BLOCK + 1]]


def test_errors_of_the_job_are_raised_where_it_is_opened(tmp_path: Path) -> None:
    job = RolloutJob.from_yaml(write_job(tmp_path, dataset={"source": {"use": "no:such"}}))
    with pytest.raises(ExtensionError, match="no"):
        session_thread(job)


def test_an_error_of_the_work_is_raised_and_the_session_goes_on(tmp_path: Path) -> None:
    with beside(tmp_path) as thread:
        with pytest.raises(UsageError, match="no task three"):
            thread.run(thread.value.run_episode("three"))
        assert thread.run(thread.value.run_episode("two")).failure is None


def test_close_ends_what_still_runs(tmp_path: Path) -> None:
    with beside(tmp_path) as thread:
        sandboxes().tools.clear()
        running = thread.submit(thread.value.run_episode("one"))
        thread.close()
        assert running.cancelled() or running.result(timeout=10).failure is None
        assert sandboxes().open == 0
