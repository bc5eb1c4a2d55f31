"""Run up to a given number of episodes concurrently, and commit each once.

The backlog comes from `worker.backlog`; `episode` plays one episode. While a service is down, the
scheduler waits and no episode loses an attempt; `Services` is its view of the services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol, TypeVar

import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    wait_exponential,
)

from swe_rollout.context import Attempt, JobContext
from swe_rollout.episode import run_episode
from swe_rollout.errors import (
    StoreError,
    SweRolloutError,
    UnreachableError,
    unwrapped,
)
from swe_rollout.events import Committed, Phase, PhaseBegan, Service, StoreFailed, Waited, waiting
from swe_rollout.journal.writer import TakenOverError
from swe_rollout.spec.limits import FailureBudget
from swe_rollout.store.damage import DamagedRecordError
from swe_rollout.store.refills import Refills
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.attempts import AttemptQueue, Attempts, play_attempts, replaced
from swe_rollout.worker.failure_budget import CommittedCounts, CountedBefore
from swe_rollout.worker.resume import ResumableEpisodes

log = structlog.get_logger()
_T = TypeVar("_T")
_A = TypeVar("_A")

OWNER_POLL_S = 2.0
"""How often to check on an episode that another process has taken over."""
OWNER_PATIENCE_S = 600.0
"""After this long without a write, that process counts as dead: longer than any turn."""


class Others(Enum):
    """Whether other processes play episodes of the same list."""

    NONE = auto()
    POSSIBLE = auto()
    """One may have joined: an episode is looked for in the store before it is played."""
    PLAYING = auto()
    """This one has joined another, which goes on with the episodes that have journals."""


class Services(Protocol):
    """The state of the services that episodes depend on, as seen by a monitor."""

    store_patience_s: float
    """How long a finished episode waits for a store that is down before the job stops."""

    async def ready(self) -> None:
        """Wait until an attempt may start."""
        ...

    async def excuses(self, failure: Failure) -> bool:
        """Whether an attempt failed because a service is down, and so does not count."""
        ...

    def store_failed(self, error: SweRolloutError) -> None:
        """Note that the store refused a read or a write, which will be retried."""
        ...

    def store_responded(self) -> None:
        """Note that a read or a write succeeded."""
        ...


class Unmonitored:
    """`Services` without a monitor: every failure counts."""

    store_patience_s = 300.0

    async def ready(self) -> None: ...

    async def excuses(self, failure: Failure) -> bool:  # noqa: ARG002 - the protocol's
        return False

    def store_failed(self, error: SweRolloutError) -> None: ...

    def store_responded(self) -> None: ...


class EpisodeScheduler:
    """Runs episodes concurrently, commits each once, and enforces the failure budget."""

    def __init__(
        self,
        context: JobContext,
        store: Store,
        *,
        budget: FailureBudget,
        size: int,
        services: Services | None = None,
        journals: ResumableEpisodes | None = None,
        before: CountedBefore | None = None,
        others: Others = Others.NONE,
        refills: Refills | None = None,
    ) -> None:
        """`size` is how many episodes run at a time; 0 starts none.

        Without `journals`, an interrupted episode starts over. With `refills`, a failed sample is
        followed by its replacement.
        """
        self._context = context
        self._store = store
        self._counts = CommittedCounts(budget, before or CountedBefore())
        self._size = size
        self._services = services or Unmonitored()
        self._journals = journals
        self._others = others
        self._refills = refills
        self._theirs = set[EpisodeId]()
        """Replacements that another process, which was alive then, is to play."""
        self.elsewhere = 0
        """Episodes that another process committed meanwhile."""
        self._queue = AttemptQueue()
        self._tasks: dict[asyncio.Task[Trajectory], Attempt] = {}
        self._committing: set[asyncio.Task[Trajectory] | None] = set()
        self._changed = asyncio.Event()
        self._closed = False
        self._playing = 0
        self._one_ended = asyncio.Event()

    @property
    def running(self) -> int:
        """Return the number of episodes being played or graded."""
        return self._playing

    @property
    def left(self) -> int:
        """Return the number of episodes not committed yet."""
        return len(self._queue) + len(self._tasks)

    def add(self, attempts: Attempts) -> None:
        """Queue attempts, in this order."""
        self._queue.add(attempts)
        self._changed.set()

    def resize(self, size: int) -> None:
        """Run `size` episodes at a time from now on; surplus ones finish."""
        self._size = size
        self._changed.set()

    def drop(self) -> None:
        """Cancel running episodes and requeue them from the start; commits continue."""
        for task in self._tasks.keys() - self._committing:
            task.cancel()

    def close(self) -> None:
        """Start no more episodes: `work` returns when the running ones have ended."""
        self._closed = True
        self._changed.set()

    async def work(self) -> None:
        """Run all queued episodes; stop at the first error that concerns the whole job.

        Episodes stopped by it stay queued, and `work` can be called again.
        """
        with unwrapped():
            async with asyncio.TaskGroup() as group:
                while self._tasks or (self._queue and not self._closed):
                    self._fill(group)
                    self._prewarm()
                    self._changed.clear()
                    await self._changed.wait()

    def _fill(self, group: asyncio.TaskGroup) -> None:
        while self._queue and len(self._tasks) < self._size and not self._closed:
            attempt = self._queue.pop()
            task = group.create_task(self.play(attempt), name=str(attempt.episode))
            self._tasks[task] = attempt
            task.add_done_callback(self._ended)

    def _prewarm(self) -> None:
        """Prewarm sandboxes for the attempts that can start next, no more than run at a time."""
        startable = 0 if self._closed else self._size
        self._context.prewarm(self._tasks.values(), self._queue.peek(startable))

    def _ended(self, task: asyncio.Task[Trajectory]) -> None:
        attempt = self._tasks.pop(task)
        self._committing.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._queue.put_back(attempt)
        self._changed.set()

    async def play(self, first: Attempt) -> Trajectory:
        """Play an episode at once, and return the record that is committed for it."""
        with structlog.contextvars.bound_contextvars(episode=str(first.episode)):
            trajectory = await self._played(first)
            self._committing.add(asyncio.current_task())
            if self._journals is not None:
                keep = partial(self._journals.keep, fork=self._context.fork)
                trajectory = await self._patiently(keep, trajectory)
            trajectory = await self._commit(trajectory, first)
            if self._journals is not None:
                await self._journals.forget(trajectory.episode)
            return trajectory

    async def _played(self, first: Attempt) -> Trajectory:
        """Return the episode's trajectory, from here or from another process."""
        if (found := await self._played_elsewhere(first.episode)) is not None:
            return found
        if self._journals is None:
            return await play_attempts(first, self._counted, self._context)
        while True:
            attempt = await self._patiently(self._journals.first, first)
            try:
                return await play_attempts(attempt, self._counted, self._context)
            except TakenOverError as error:
                log.warning("episode_taken_over", why=error.why, fix=error.fix)
            if (found := await self._committed_by_owner(first.episode)) is not None:
                return found
            log.warning("episode_taken_back", why="its owner writes nothing any more")

    async def _played_elsewhere(self, episode: EpisodeId) -> Trajectory | None:
        """Return what another process has committed since, or is about to."""
        is_theirs = episode in self._theirs
        if self._others is Others.NONE and not is_theirs:
            return None
        try:
            found = await self._patiently(self._store.find, episode)
        except DamagedRecordError:
            return None  # the commit says so
        waits = self._others is Others.PLAYING or (is_theirs and self._others is Others.POSSIBLE)
        if found is None and waits and await self._chunks(episode):
            found = await self._committed_by_owner(episode)
        return found

    async def _committed_by_owner(self, episode: EpisodeId) -> Trajectory | None:
        """Wait for the process that took an episode over; return None if it has stalled."""
        seen, since_s = -1, 0.0
        while since_s < OWNER_PATIENCE_S:
            await asyncio.sleep(OWNER_POLL_S)
            if (found := await self._patiently(self._store.find, episode)) is not None:
                return found
            chunks = await self._patiently(self._chunks, episode)
            seen, since_s = chunks, (since_s + OWNER_POLL_S if chunks == seen else 0.0)
        return None

    async def _chunks(self, episode: EpisodeId) -> int:
        return 0 if self._journals is None else await self._journals.chunks(episode)

    async def _counted(self, attempt: Attempt) -> Trajectory:
        """Run an attempt, repeating it while its failures do not count."""
        while True:
            with waiting(self._context.publish, Service.ENGINE):
                await self._services.ready()
            trajectory = await self._run(attempt)
            failure = trajectory.failure
            if failure is None:
                return trajectory
            if await self._services.excuses(failure):
                continue
            if not failure.retryable:
                return trajectory
            if failure.scarce and self._playing:
                # Other episodes use all the capacity: wait for one to end.
                await self._one_ended.wait()
                continue
            return trajectory

    async def _run(self, attempt: Attempt) -> Trajectory:
        self._playing += 1
        try:
            if self._journals is None:
                return await run_episode(attempt, self._context)
            return await self._journals.play(attempt, self._context)
        finally:
            self._playing -= 1
            self._one_ended.set()
            self._one_ended = asyncio.Event()

    async def _commit(self, trajectory: Trajectory, first: Attempt) -> Trajectory:
        self._context.publish(PhaseBegan(trajectory.episode, Phase.COMMIT))
        is_ours = await self._patiently(self._store.commit, trajectory)
        if not is_ours:
            # An earlier write succeeded unnoticed, or another process was first: its record counts.
            log.info("already_committed")
            self.elsewhere += 1
            try:
                trajectory = await self._patiently(self._store.read, trajectory.episode)
            except DamagedRecordError as error:
                log.warning("damaged_record_found", why=str(error), fix=error.fix)
                return trajectory
        if self._refills and (by := replaced(trajectory, self._refills, self._context.publish)):
            replacement = Attempt(by, first.instance, 1)
            if is_ours:
                self._queue.put_back(replacement)  # First: its group waits for it alone.
            else:
                # Whoever committed the failure plays it now; if it dies, this one does at the end.
                self._theirs.add(by)
                self._queue.put_off(replacement)
        self._context.publish(Committed(trajectory))
        self._counts.add(trajectory)
        return trajectory

    def check_budget(self) -> None:
        """Raise BudgetSpentError if too many finished episodes are masked, however few finished."""
        self._counts.check()

    async def _patiently(self, call: Callable[[_A], Awaitable[_T]], argument: _A) -> _T:
        """Call the store until it responds."""
        patient = AsyncRetrying(
            retry=retry_if_exception(_is_worth_waiting_for),
            stop=stop_after_delay(self._services.store_patience_s),
            wait=wait_exponential(multiplier=0.5, max=20),
            before_sleep=self._store_failed,
            reraise=True,
        )
        try:
            response: _T = await patient(call, argument)
        except DamagedRecordError:
            raise
        except StoreError as error:
            raise UnreachableError(error.what, why=error.why, fix=error.fix) from error
        self._services.store_responded()
        return response

    def _store_failed(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, SweRolloutError):
            self._context.publish(StoreFailed(error))
            self._context.publish(Waited(Service.STORE, state.upcoming_sleep))
            self._services.store_failed(error)


def _is_worth_waiting_for(error: BaseException) -> bool:
    if isinstance(error, StoreError):
        return error.retryable
    return isinstance(error, UnreachableError)
