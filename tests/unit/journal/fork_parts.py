"""Episodes that keep their journals, and forks of them, over a store of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.spec.job import ForkSpec, RolloutJob
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Generation
from swe_rollout.worker.forks import JournalKeeper, find_fork_point
from swe_rollout.worker.resume import ResumableEpisodes
from unit.agent.agent_parts import SUBMIT, bash
from unit.journal.journal_parts import ATTEMPT, TASK, Engine, Life

TEXTS = (bash("add a"), bash("add b"), bash("add c"), SUBMIT)
FORKED = Attempt(EpisodeId("job", "one", 5), TASK, 1)
"""The episode that begins as a fork."""


@dataclass
class Seeded(Engine):
    """Adds a line that depends on the seed, and then submits."""

    async def generate(self, request: GenerateRequest) -> Generation:
        seed = request.sampling.seed or 0
        own = (bash(f"add s{seed}"), SUBMIT)
        self.texts = {0: (*self.texts[0][:2], *own)}
        return await super().generate(request)


@dataclass
class ForkingLife(Life):
    """One process of a job that keeps its journals, or forks one."""

    fork: ForkPoint | None = None
    keeps: bool = True

    def context(self) -> JobContext:
        return replace(super().context(), fork=self.fork)

    async def episodes(self) -> ResumableEpisodes:
        keeper = JournalKeeper(store_of(self.folder), "job") if self.keeps else None
        there = dict(await self.journals.listed())
        return ResumableEpisodes(self.journals, there, keeper=keeper)


def store_of(folder: Path) -> Store:
    return Store.open(f"file://{folder}")


def job(**spec: Any) -> RolloutJob:
    return RolloutJob.model_validate(
        {
            "metadata": {"name": "job"},
            "spec": {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}, **spec},
        }
    )


def life(folder: Path, *texts: str, fork: ForkPoint | None = None, **changes: Any) -> ForkingLife:
    """A process, with an engine that plays these texts."""
    return replace(ForkingLife(folder, Engine({0: texts or TEXTS}), fork=fork), **changes)


async def committed(living: ForkingLife, attempt: Attempt = ATTEMPT) -> Trajectory:
    """Play an episode as a scheduler does: its journal is kept, it is committed."""
    episodes = await living.episodes()
    context = living.context()
    played = await episodes.play(attempt, context)
    kept = await episodes.keep(played, fork=context.fork)
    store = store_of(living.folder)
    await store.begin(job(), {"one": TASK.digest})
    assert await store.commit(kept)
    await episodes.forget(attempt.episode)
    return kept


def wanted(folder: Path, turn: int, *, sample: int = 0, **changes: Any) -> ForkSpec:
    return ForkSpec.model_validate(
        {"uri": f"file://{folder}/job", "instance": "one", "sample": sample, "turn": turn} | changes
    )


async def point(
    folder: Path,
    turn: int,
    *,
    sample: int = 0,
    context: JobContext | None = None,
    trains: bool = False,
    **spec: Any,
) -> ForkPoint:
    """Find a turn of a committed episode."""
    fork = wanted(folder, turn, sample=sample, trainInherited=trains)
    context = context or life(folder).context()
    return await find_fork_point(fork, job(**spec), context, [TASK])
