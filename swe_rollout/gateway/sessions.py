"""Sessions: each lets one harness play one episode of a job, and ends in its record.

A session has a key of its own, which is good for its tokens and dead when it ends. Who opened it
closes it, with the patch that the harness made if it is to be graded.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import EpisodeError, InternalError, UsageError, boundary
from swe_rollout.events import Phase
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.recorder import Recorder
from swe_rollout.sandbox.repository import Patch
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.backlog import begin
from swe_rollout.worker.session import Session


@dataclass(eq=False, slots=True)
class OpenSession:
    """One harness and its episode."""

    key: str = field(repr=False)
    attempt: Attempt
    conversations: Conversations
    patch: str = ""
    """What the harness changed, once the session is closed."""
    running: int = 0
    """Requests that are being answered."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Trajectory] = field(init=False)

    @property
    def id(self) -> str:
        """The name for whoever opened it: task and sample."""
        return _name(self.attempt.episode)


class Sessions:
    """The sessions of a job that is open in this process."""

    def __init__(self, session: Session, store: Store, committed: frozenset[EpisodeId]) -> None:
        self._session, self._store = session, store
        self._open: dict[str, OpenSession] = {}
        self._taken = {*committed}

    @classmethod
    async def begin(cls, session: Session, store: Store) -> Self:
        """Record the job in its store. Raises UsageError if another job of that name is there."""
        backlog = await begin(
            store, session.job, session.instances, quarantined=session.quarantined
        )
        return cls(session, store, backlog.committed)

    def __iter__(self) -> Iterator[OpenSession]:
        return iter(self._open.values())

    def open(self, task: str, sample: int | None = None) -> OpenSession:
        """Open a session for a sample of a task, by default the first that nobody has played.

        Raises UsageError for an unknown task, and for a sample that is played or stored.
        """
        instance = self._session.instance(task)
        job = self._session.job.metadata.name
        number = sample or 0
        while sample is None and EpisodeId(job, task, number) in self._taken:
            number += 1
        episode = EpisodeId(job, task, number)
        if episode in self._taken:
            raise UsageError(
                f"{episode} is stored or being played", fix="leave `sample` out, or take another"
            )
        self._taken.add(episode)
        context = self._session.context
        opened = OpenSession(
            secrets.token_urlsafe(24),
            Attempt(episode, instance, number=1),
            Conversations(context.agent, episode, context.sampling_for(episode)),
        )
        self._open[opened.id] = opened
        opened.task = asyncio.create_task(self._play(opened, context))
        return opened

    def by_key(self, key: str) -> OpenSession | None:
        """Return the open session of a key."""
        given = key.encode(errors="surrogatepass")
        return next((s for s in self if hmac.compare_digest(s.key.encode(), given)), None)

    def by_id(self, name: str) -> OpenSession | None:
        """Return an open session."""
        return self._open.get(name)

    async def stored(self, name: str) -> Trajectory | None:
        """Return the record of a session that has ended, for instance because its time was up.

        Raises StoreError, UnreachableError.
        """
        episode = next((each for each in self._taken if _name(each) == name), None)
        return None if episode is None else await self._store.find(episode)

    async def close(self, opened: OpenSession, patch: str = "") -> Trajectory:
        """End a session and return its record, which is in the store then.

        A patch is graded; closing it again waits for the same record. Raises StoreError.
        """
        if not opened.ended.is_set():
            opened.patch = patch
            opened.ended.set()
        return await asyncio.shield(opened.task)

    async def aclose(self) -> None:
        """End all sessions without a record: their episodes can be played anew."""
        tasks = [opened.task for opened in self]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, opened: OpenSession, context: JobContext) -> Trajectory:
        """Wait for the end of a session, and make and commit its record."""
        attempt, played = opened.attempt, opened.conversations
        try:
            with Recorder(attempt, context) as record:
                record.agent = played
                record.enter(Phase.AGENT)
                try:
                    async with boundary(InternalError, "the session"):
                        record.stop_reason = await _stop(opened)
                        await _grade(opened, context, record)
                except EpisodeError as error:
                    record.fail(error)
                trajectory = record.trajectory()
            await self._store.commit(trajectory)
        except BaseException:
            self._taken.discard(attempt.episode)
            raise
        finally:
            del self._open[opened.id]
            await played.close()
            context.agent.engine.release(attempt.episode)
        return trajectory


def _name(episode: EpisodeId) -> str:
    return f"{episode.instance}/{episode.sample}"


async def _stop(opened: OpenSession) -> StopReason:
    """Wait until a session ends, by itself or by its time; return why.

    Raises the failure of its engine.
    """
    played = opened.conversations
    clock = played.state.deadline
    stop = StopReason.FINISHED
    while not opened.ended.is_set():
        if clock.expired:
            stop = StopReason.TIME_LIMIT
            break
        try:
            async with asyncio.timeout(max(clock.remaining_s, _SHORT_S)):
                await opened.ended.wait()
        except TimeoutError:
            continue
    await played.close()
    if played.state.failure is not None:
        raise played.state.failure
    return played.stop or stop


_SHORT_S = 0.01


async def _grade(opened: OpenSession, context: JobContext, record: Recorder) -> None:
    record.patch = Patch(opened.patch)
    if not opened.patch:
        return
    record.enter(Phase.GRADE)
    record.verdict = await context.grade(opened.attempt, record.patch)
    if record.verdict is not None:
        record.reward = await context.rewards.score(record.reward_input(record.verdict))
