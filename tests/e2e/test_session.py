"""A session plays single episodes of a job from Python; nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.command import Job
from e2e.losing import LOSING
from swe_rollout import Group, RewardInput, RolloutJob, Trajectory
from swe_rollout.errors import UsageError
from swe_rollout.spec.policy import Sampling


def test_episodes_are_played_side_by_side(job_file: Callable[..., Job]) -> None:
    file = job_file(scenarios=["gold", "empty"])

    def talk(episode: RewardInput) -> float:
        return float(len(episode.turns))

    async def play() -> list[float]:
        job = RolloutJob.from_yaml(file.path, reward=["resolved", talk])
        async with job.session() as session:
            (task,) = session.instances
            with pytest.raises(UsageError, match="no task nothing"):
                await session.run_episode("nothing")
            gold, empty = await asyncio.gather(
                session.run_episode(task, sample=0),
                session.run_episode(task.instance_id, sample=1),
            )
        assert (gold.resolved, empty.resolved) == (True, False)
        rewards = [each.reward for each in (gold, empty) if each.reward is not None]
        assert [term.name.rpartition(":")[2] for term in rewards[0].terms] == ["resolved", "talk"]
        return [reward.value for reward in rewards]

    gold, empty = asyncio.run(play())

    assert gold > empty > 1
    assert not Path(file.folder).exists()


def test_episodes_of_a_task_are_numbered_and_never_played_twice_at_once(
    job_file: Callable[..., Job],
) -> None:
    file = job_file(scenarios=["gold", "empty"], grading={"enabled": False})

    async def play() -> list[Trajectory]:
        async with RolloutJob.from_yaml(file.path).session() as session:
            (task,) = session.instances
            warm = Sampling(temperature=0.25)
            first = asyncio.create_task(session.run_episode(task, sampling=warm))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="0 is being played"):
                await session.run_episode(task, sample=0)
            return [await first, await session.run_episode(task), await session.run_episode(task)]

    warm, *others = asyncio.run(play())

    assert [each.episode.sample for each in (warm, *others)] == [0, 1, 2]
    assert [_temperatures(each) for each in (warm, *others)] == [{0.25}, {1.0}, {1.0}]


def _temperatures(trajectory: Trajectory) -> set[float | None]:
    main = trajectory.main_branch
    return {
        temperature
        for temperature, mask in zip(main.temperatures, main.loss_mask, strict=True)
        if mask
    }


def test_a_group_is_played_without_a_store_and_its_numbers_are_new(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    code = tmp_path / "losing.py"
    code.write_text(LOSING)
    file = job_file(
        scenarios=["gold", "empty"],
        sandbox={"backend": {"use": "losing:Losing"}},
        retry={"attempts": 1},
    )

    async def play() -> tuple[Group, Group]:
        async with RolloutJob.from_yaml(file.path, files=[code]).session() as session:
            (task,) = session.instances
            first = await session.run_group(task, refills=1)
            return first, await session.run_group(task.instance_id, samples=1, refills=0)

    first, second = asyncio.run(play())
    assert [each.episode.sample for each in first.trajectories] == [0, 3]
    assert first.rewards == (1.0, 0.0)
    assert [each.rollout_id[-2:] for each in first.failed] == ["/1"]
    assert [each.episode.sample for each in second.trajectories] == [4]
    assert not second.is_short
