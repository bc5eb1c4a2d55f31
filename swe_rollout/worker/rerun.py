"""Run the masked episodes of a job again, after their cause was fixed.

An episode whose turns are all there is graded again, as long as only code that grades has changed
since; any other is played again. Its earlier record moves aside.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Final

from swe_rollout.agent.parsers import CALL_FORMATS
from swe_rollout.agent.program import AGENTS
from swe_rollout.agent.tools import TOOLS
from swe_rollout.context import Attempt, JobContext
from swe_rollout.datasets import DATASETS
from swe_rollout.engine.chat.function import CHAT_ENGINES
from swe_rollout.errors import EpisodeError, InternalError, boundary, gather_all
from swe_rollout.grading.rewards import RewardInput
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.store import Store
from swe_rollout.types.episode import Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.backlog import Backlog
from swe_rollout.worker.engines import ENGINES
from swe_rollout.worker.sandboxes import SANDBOXES
from swe_rollout.worker.session import Session

_PLAYING: Final = (AGENTS, TOOLS, CALL_FORMATS, DATASETS, ENGINES, CHAT_ENGINES, SANDBOXES)
"""The kinds of extensions that an episode's turns depend on."""


async def rerun_masked(
    session: Session, store: Store, backlog: Backlog, on_note: Callable[[str], None]
) -> Backlog:
    """Grade or free the masked episodes of the backlog; return what is committed then."""
    tasks = {task.instance_id: task for task in backlog.attempts.tasks}
    graded, played = list[Trajectory](), list[Trajectory]()
    async for record in masked_records(store, backlog):
        (graded if _needs_grading(session.job, record) else played).append(record)
    if not (graded or played):
        on_note("no episode is masked: none is run again")
        return backlog
    on_note(
        f"{len(graded) + len(played)} episodes were masked: {len(graded)} are graded again, "
        f"{len(played)} are played again"
    )
    places = asyncio.Semaphore(session.job.spec.parallelism)

    async def grade(record: Trajectory) -> None:
        async with places:
            instance = tasks[record.episode.instance]
            attempt = Attempt(record.episode, instance, record.attempt + 1)
            found = await _graded(record, attempt, session.context)
            await store.move_aside(record.episode)
            await store.commit(found)

    await gather_all(map(grade, graded))
    await gather_all(store.move_aside(record.episode) for record in played)
    committed = backlog.committed - {each.episode for each in played}
    return replace(backlog, committed=committed, graded=len(graded))


async def masked_records(store: Store, backlog: Backlog) -> AsyncIterator[Trajectory]:
    """Yield the masked records, without those whose place in their group another sample took."""
    async for record in store.records(backlog.committed):
        if isinstance(record, DamagedRecord) or not record.masked:
            continue
        if backlog.refills.following(record.episode) not in backlog.committed:
            yield record


async def _graded(record: Trajectory, attempt: Attempt, context: JobContext) -> Trajectory:
    """Return the record with a new verdict, unless it has one, and a new reward."""
    verdict, reward, failure = record.verdict, None, None
    try:
        async with boundary(InternalError, "grading"):
            verdict = verdict or await context.grade(attempt, Patch(record.patch))
            if verdict is not None:
                given = RewardInput(
                    attempt.instance, verdict, record.patch, record.turns, record.stop_reason
                )
                reward = await context.rewards.score(given)
    except EpisodeError as error:
        failure = Failure.of(error)
    brought = {file.name: f"sha256:{file.sha256}" for file in context.extensions}
    return replace(
        record,
        verdict=verdict,
        reward=reward,
        failure=failure,
        attempt=attempt.number,
        spec_digest=context.spec_digest,
        software=dict(record.software) | brought,
        finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _needs_grading(job: RolloutJob, record: Trajectory) -> bool:
    """Whether the episode's turns stay, and only its grading is repeated."""
    if record.stop_reason is None or not (record.verdict or record.patch.strip()):
        return False
    changed = {
        file.name
        for file in job.spec.extensions
        if record.software.get(file.name) != f"sha256:{file.sha256}"
    }
    return not changed & set(_Code(job).played)


@dataclass(frozen=True, slots=True)
class _Code:
    """The files that a job brought."""

    job: RolloutJob

    @property
    def played(self) -> Iterator[str]:
        """The files that an episode's turns depend on; a bundle of tools always is one."""
        modules = self._modules()
        used = set(_named(self.job.spec.model_dump(mode="json", exclude={"grading"})))
        used |= {module for point in _PLAYING for module in point.modules()}
        while more := {name for each in used & modules.keys() for name in self._imports(each)}:
            if more <= used:
                break
            used |= more
        for file in self.job.spec.extensions:
            stem, _, suffix = file.name.rpartition(".")
            if suffix != "py" or stem in used:
                yield file.name

    def _modules(self) -> Mapping[str, ModuleType]:
        stems = (file.name.removesuffix(".py") for file in self.job.spec.extensions)
        return {stem: sys.modules[stem] for stem in stems if stem in sys.modules}

    def _imports(self, name: str) -> Iterator[str]:
        """Yield the modules from which a module has imported anything."""
        for value in vars(sys.modules[name]).values():
            is_module = isinstance(value, ModuleType)
            yield str(value.__name__ if is_module else getattr(value, "__module__", ""))


def _named(value: object) -> Iterator[str]:
    """Yield the modules that a part of a spec names as `module:attr`."""
    match value:
        case dict():
            for each in value.values():
                yield from _named(each)
        case list():
            for each in value:
                yield from _named(each)
        case str():
            yield value.partition(":")[0]
