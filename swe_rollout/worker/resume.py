"""Play attempts with journals: each resumes where its journal ends, whoever wrote it.

An attempt that lost its sandbox or its engine resumes too, as long as it makes progress: if the
policy destroys its own sandbox in the same turn each time, each time costs an attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Self

import msgspec
import structlog
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from swe_rollout.context import Attempt, JobContext
from swe_rollout.episode import run_episode
from swe_rollout.errors import StoreError, UnreachableError
from swe_rollout.journal.attempt import (
    AttemptJournal,
    mark_closed,
    mark_resumed,
    new_writer,
)
from swe_rollout.journal.entries import Chunk, DamagedChunkError, compress, encode
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.journal.reading import Earlier, read, read_chunk
from swe_rollout.journal.restoring import why_not, would_lack
from swe_rollout.journal.tape import DivergedError
from swe_rollout.sandbox.base import Reattaching
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.limits import Resume
from swe_rollout.store.journals import JournalRef, Journals
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.backlog import Backlog
from swe_rollout.worker.forks import JournalKeeper

log = structlog.get_logger()

PATIENCE_S: Final = 300.0
"""How long a resumed episode waits for the store."""
_CLAIMS: Final = 8
"""Attempts to claim a journal that another process is still writing."""


class ResumableEpisodes:
    """The journals of the episodes that one process plays."""

    def __init__(
        self,
        journals: Journals,
        there: dict[EpisodeId, JournalRef],
        *,
        keeper: JournalKeeper | None = None,
        on_turn: Callable[[], None] | None = None,
    ) -> None:
        """`there` holds the last journal of each episode that has one. Without `keeper`, no journal
        is kept for forks. `on_turn` is called whenever a turn becomes durable.
        """
        self._journals = journals
        self._turns = journals if on_turn is None else journals.telling(on_turn)
        self._there = there
        self._keeper = keeper
        self._found = frozenset(there)
        self._unplayed = set(there)

    @property
    def unplayed(self) -> frozenset[EpisodeId]:
        """Return the episodes with journals of earlier processes that this one has not started.

        Their sandboxes may still be running: a resumed attempt attaches to its sandbox or ends it.
        """
        return frozenset(self._unplayed)

    @classmethod
    async def open(
        cls,
        store: Store,
        job: str,
        backlog: Backlog,
        *,
        keeper: JournalKeeper | None = None,
        on_turn: Callable[[], None] | None = None,
        samples: int | None = None,
    ) -> Self:
        """Find the journals left by earlier processes, and remove those of committed episodes.

        Samples of a task are numbered below `samples`, by default those of the job and their
        replacements. Raises UnreachableError when the store is down.
        """
        below = max(backlog.attempts.samples, backlog.refills.below)
        below = below if samples is None else samples
        journals = store.journals(job)
        tasks = {task.instance_id for task in backlog.attempts.tasks}
        there = {
            episode: ref
            for episode, ref in (await journals.listed()).items()
            if episode.instance in tasks and episode.sample < below
        }
        await journals.remove([each for each in there if each in backlog.committed])
        left = {each: ref for each, ref in there.items() if each not in backlog.committed}
        if left:
            log.info("journals_found", episodes=len(left))
        return cls(journals, left, keeper=keeper, on_turn=on_turn)

    async def first(self, attempt: Attempt) -> Attempt:
        """Return the attempt in the episode's journal, or the given one if there is none."""
        ref = self._there.get(attempt.episode)
        try:
            first = await read_chunk(ref, 0, await self._journals.chunk(ref, 0)) if ref else None
        except (DamagedChunkError, FileNotFoundError):
            return attempt
        header = first.header if first else None
        return attempt if header is None else replace(attempt, number=header.attempt)

    async def play(self, attempt: Attempt, context: JobContext) -> Trajectory:
        """Play an attempt from the end of its journal. Raises as `run_episode`, UnreachableError.

        An attempt that can't resume, or that diverges from its journal, starts over.
        """
        is_second = False
        while True:
            journal: AttemptJournal = await _patient()(self._open, attempt, context)
            try:
                trajectory = await run_episode(attempt, context, journal)
            except DivergedError as error:
                if context.fork is not None and not journal.goes_on:
                    raise context.fork.refused(error) from error
                await _patient()(self._abandon, attempt.episode, error.why)
                continue
            finally:
                await journal.aclose()
                if not journal.is_begun and self._there[attempt.episode].number == 1:
                    del self._there[attempt.episode]  # there is nothing to remove
            failure = trajectory.failure
            if failure is None or not failure.retryable:
                return trajectory
            if not journal.written:
                # The first turn gets two attempts, like any other; its sandbox had to start for
                # that.
                if is_second or journal.goes_on or not journal.had_sandbox:
                    return trajectory
                is_second = True
            log.info("episode_resumes", attempt=attempt.number, why=failure.message)

    async def chunks(self, episode: EpisodeId) -> int:
        """Count the chunks of the episode's journal, whoever wrote them."""
        ref = await self._journals.last(episode)
        return 0 if ref is None else ref.chunks

    async def keep(self, trajectory: Trajectory, *, fork: ForkPoint | None) -> Trajectory:
        """Keep an episode's journal for forks, if the job asks for it, and name it in the record.

        Raises UnreachableError and StoreError, after which it is safe to retry.
        """
        if self._keeper is None or trajectory.episode not in self._there:
            return trajectory
        return await self._keeper.keep(trajectory, fork)

    async def forget(self, episode: EpisodeId) -> None:
        """Remove the journals of a committed episode. Never raises for an error of the store."""
        if self._there.pop(episode, None) is None:
            return
        try:
            await self._journals.remove([episode])
        except (UnreachableError, StoreError) as error:
            log.warning("journal_not_removed", episode=str(episode), why=str(error))

    async def _open(self, attempt: Attempt, context: JobContext) -> AttemptJournal:
        """Claim the episode's journal, or start one."""
        episode, writer = attempt.episode, new_writer()
        self._unplayed.discard(episode)
        earlier = await self._earlier(episode)
        if earlier is not None and context.fork is not None:
            earlier = context.fork.before(earlier)
        if earlier is not None and (why := _refusal(earlier, attempt, context)):
            await self._abandon(episode, why)
            earlier = None
        if earlier is not None:
            claimed = await self._claim(earlier.ref, mark_resumed(writer))
            if claimed.chunks != earlier.ref.chunks + 1:
                return await self._open(attempt, context)
            log.info("episode_resumes", attempt=attempt.number, chunks=earlier.ref.chunks)
            self._there[episode] = claimed
            return AttemptJournal(self._turns, claimed, earlier, writer=writer, fork=context.fork)
        number = self._there[episode].number + 1 if episode in self._there else 1
        fresh = self._there[episode] = JournalRef(episode, number, 0)
        return AttemptJournal(
            self._turns,
            fresh,
            None,
            writer=writer,
            fork=context.fork,
            has_orphans=episode in self._found,
        )

    async def _earlier(self, episode: EpisodeId) -> Earlier | None:
        """Read the episode's last journal; set it aside if it is damaged."""
        if episode not in self._there:
            return None
        ref = await self._journals.last(episode)
        if ref is None or ref.number < self._there[episode].number:
            return None
        self._there[episode] = ref
        try:
            earlier = await read(ref, await self._journals.read(ref))
        except (DamagedChunkError, FileNotFoundError) as error:
            if address := await self._journals.set_aside(ref):
                why = str(error)
                log.warning("damaged_journal_found", episode=str(episode), why=why, now=address)
            return None
        return None if earlier.is_closed else earlier

    async def _abandon(self, episode: EpisodeId, why: str) -> None:
        """Close the episode's journal for everyone; its current writer notices at its next turn."""
        log.warning("episode_begins_anew", episode=str(episode), why=why)
        ref = self._there[episode]
        self._there[episode] = await self._claim(ref, mark_closed(new_writer()))

    async def _claim(self, ref: JournalRef, chunk: Chunk) -> JournalRef:
        """Append a chunk, even while another process writes; return the resulting journal."""
        for _ in range(_CLAIMS):
            placed = msgspec.structs.replace(chunk, place=ref.place(ref.chunks))
            if await self._journals.create(ref, ref.chunks, compress(encode(placed))):
                return replace(ref, chunks=ref.chunks + 1)
            ref = await self._journals.last(ref.episode) or ref
        raise UnreachableError(
            f"the journal of {ref.episode} can't be taken",
            why="another process writes it all the time",
            fix="run one worker for each shard of a job",
        )


def _patient() -> AsyncRetrying:
    """Return the retry policy for an unresponsive store: an episode is worth the wait."""
    return AsyncRetrying(
        retry=retry_if_exception_type(UnreachableError),
        stop=stop_after_delay(PATIENCE_S),
        wait=wait_exponential(multiplier=0.5, max=20),
        reraise=True,
    )


async def open_journals(
    store: Store,
    job: RolloutJob,
    backlog: Backlog,
    *,
    on_turn: Callable[[], None] | None = None,
    samples: int | None = None,
) -> ResumableEpisodes | None:
    """Open the journals of a job's episodes, or return None if its spec disables them.

    `on_turn` is called whenever a turn becomes durable; `samples` is as in `open`.
    """
    # A harness lives on only with its sandbox.
    is_lost = job.spec.agent.harness is not None and job.spec.sandbox.pod is None
    if job.spec.retry.resume is Resume.NEVER or is_lost:
        return None
    name = job.metadata.name
    keeper = JournalKeeper(store, name) if job.spec.store.keep_journals else None
    return await ResumableEpisodes.open(
        store, name, backlog, keeper=keeper, on_turn=on_turn, samples=samples
    )


def _refusal(earlier: Earlier, attempt: Attempt, context: JobContext) -> str:
    """Describe why an attempt can't resume from a journal; empty if it can."""
    if why := why_not(earlier, attempt, context):
        return why
    may_live = earlier.mark is not None and isinstance(context.sandboxes, Reattaching)
    return "" if may_live and earlier.end is None else would_lack(earlier, context)
