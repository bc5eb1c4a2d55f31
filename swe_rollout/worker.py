"""Many episodes: what is left to do, so many at a time, each committed once, resumed after a crash.

`run_job` is what `swe-rollout run` does in this process. It knows nothing of terminals: it tells a
`Progress` what happens and a callback what a person should know.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from swe_rollout import assembly
from swe_rollout.datasets.base import load
from swe_rollout.episode import run_episode
from swe_rollout.errors import StoreError, SweRolloutError, UnreachableError
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.validate import Validation, validate
from swe_rollout.rollout import Attempt
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobSummary, summarise
from swe_rollout.trajectory import EpisodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from swe_rollout.instance import Instance
    from swe_rollout.progress import Progress
    from swe_rollout.rollout import Rollout
    from swe_rollout.spec.job import Dataset, FailureBudget, RetrySpec, RolloutJob, SandboxSpec
    from swe_rollout.trajectory import Trajectory

log = structlog.get_logger()
_T = TypeVar("_T")

STORE_PATIENCE_S = 300.0
"""How long a finished episode waits for a store that is down before the job stops."""
BUDGET_FLOOR = 10
"""The failure budget counts from this many episodes on."""


class BudgetSpentError(SweRolloutError):
    """Too many episodes were masked: something is wrong with the infrastructure, not the policy."""


class DeadlineExceededError(SweRolloutError):
    """The job's own deadline passed; what was committed stays."""


async def run_job(
    job: RolloutJob,
    *,
    base_dir: Path,
    progress: Progress,
    on_note: Callable[[str], None],
) -> JobSummary:
    """Roll out every episode of `job` that its store does not hold yet; the state at the end.

    `base_dir` is where relative dataset paths start. Raises UsageError, PrerequisiteError or
    UnreachableError before any episode starts, and BudgetSpentError or UnreachableError (store)
    while they run; whatever was committed stays.
    """
    name = job.metadata.name
    store = Store.open(job.spec.store.uri)
    loaded = await load(job.spec.dataset, base_dir=base_dir, on_progress=on_note)
    for problem in loaded.problems:
        on_note(f"left out: {problem}")
    async with AsyncExitStack() as stack:
        rollout = await assembly.assemble(
            job, loaded.instances, progress=progress, on_note=on_note, stack=stack
        )
        await store.begin(job, [instance.instance_id for instance in loaded.instances])
        committed = await store.committed(name)
        episodes = _plan(name, loaded.instances, job.spec.samples)
        todo = [(e, i) for e, i in episodes if e not in committed]
        progress.planned(len(episodes), len(episodes) - len(todo))
        if job.spec.suspend:
            on_note("spec.suspend is true: no episode is started")
        else:
            if todo:
                await rollout.sandboxes.sweep(committed)
            crew = _Crew(rollout, store, job.spec.retry, job.spec.failure_budget)
            try:
                async with asyncio.timeout(job.spec.active_deadline_seconds):
                    await crew.work(todo, parallelism=job.spec.parallelism)
            except TimeoutError as error:
                raise DeadlineExceededError(
                    "the job's time is over",
                    why=f"spec.activeDeadlineSeconds is {job.spec.active_deadline_seconds:g}",
                    fix="run it again to go on where it stopped, or raise the deadline",
                ) from error
    return await summarise(store, name)


async def validate_dataset(
    dataset: Dataset,
    sandbox: SandboxSpec,
    *,
    base_dir: Path,
    parallelism: int,
    on_result: Callable[[Validation], None],
    on_note: Callable[[str], None],
) -> tuple[Validation, ...]:
    """Whether each task's reference fix resolves it and doing nothing does not; no model needed.

    Results come in the dataset's order; `on_result` hears of each as it is there. Raises what
    `run_job` raises, and the first EpisodeError: a sandbox that breaks says nothing of the task.
    """
    loaded = await load(dataset, base_dir=base_dir, on_progress=on_note)
    for problem in loaded.problems:
        on_note(f"left out: {problem}")
    room = asyncio.Semaphore(parallelism)

    async with AsyncExitStack() as stack:
        provider = assembly.open_sandboxes(
            sandbox, loaded.instances, job="validate", on_note=on_note, stack=stack
        )
        grader = Grader(provider)

        async def one(instance: Instance) -> Validation:
            async with room:
                result = await validate(instance, grader)
            on_result(result)
            return result

        return await _together([one(instance) for instance in loaded.instances])


async def _together(work: Sequence[Coroutine[None, None, _T]]) -> tuple[_T, ...]:
    """All results, in order; the first of our own errors ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except* SweRolloutError as errors:
        raise _first(errors) from None
    return tuple(task.result() for task in tasks)


def _first(errors: BaseExceptionGroup[SweRolloutError]) -> SweRolloutError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _plan(
    job: str, instances: Sequence[Instance], samples: int
) -> list[tuple[EpisodeId, Instance]]:
    """All episodes; samples of an instance stay together (groups, image and prefix locality)."""
    return [
        (EpisodeId(job, instance.instance_id, sample), instance)
        for instance in instances
        for sample in range(samples)
    ]


class _Crew:
    """Runs episodes side by side, commits each, and watches the failure budget."""

    def __init__(
        self, rollout: Rollout, store: Store, retry: RetrySpec, budget: FailureBudget
    ) -> None:
        self._rollout = rollout
        self._store = store
        self._retry = retry
        self._budget = budget
        self._finished = 0
        self._masked = 0
        self._acting = 0
        self._room = asyncio.Event()

    async def work(self, todo: list[tuple[EpisodeId, Instance]], *, parallelism: int) -> None:
        """Run all of `todo`; the first error that is the job's own stops everything."""
        queue = iter(todo)

        async def hand() -> None:
            for episode, instance in queue:
                await self._commit(await self._attempts(episode, instance))

        await _together([hand() for _ in range(min(parallelism, len(todo)))])

    async def _attempts(self, episode: EpisodeId, instance: Instance) -> Trajectory:
        """The first attempt that nothing broke, or the last one."""
        number = 1
        while True:
            trajectory = await self._act(Attempt(episode, instance, number))
            failure = trajectory.failure
            if failure is None or not failure.retryable:
                return trajectory
            if failure.scarce and self._acting:
                # The others hold the room: one of them has to end first, and no try is used up.
                await self._room.wait()
                continue
            if number >= self._retry.attempts:
                return trajectory
            self._rollout.progress.retried(episode, failure, number)
            await asyncio.sleep(self._retry.backoff_seconds * 2 ** (number - 1))
            number += 1

    async def _act(self, attempt: Attempt) -> Trajectory:
        self._acting += 1
        try:
            return await run_episode(attempt, self._rollout)
        finally:
            self._acting -= 1
            self._room.set()
            self._room = asyncio.Event()

    async def _commit(self, trajectory: Trajectory) -> None:
        patient = AsyncRetrying(
            retry=retry_if_exception_type((StoreError, UnreachableError)),
            stop=stop_after_delay(STORE_PATIENCE_S),
            wait=wait_exponential(multiplier=0.5, max=20),
            reraise=True,
        )
        try:
            created: bool = await patient(self._store.commit, trajectory)
        except StoreError as error:
            raise UnreachableError(error.what, why=error.why, fix=error.fix) from error
        if not created:
            log.info("already_committed", episode=str(trajectory.episode))
            return
        self._rollout.progress.done(trajectory)
        self._finished += 1
        self._masked += trajectory.masked
        if (
            self._finished >= BUDGET_FLOOR
            and self._masked > self._budget.max_masked_fraction * self._finished
        ):
            raise BudgetSpentError(
                "the failure budget is spent",
                why=f"{self._masked} of {self._finished} episodes were masked",
                fix="mend the cause (`swe-rollout status` lists the failures), then run again",
            )
