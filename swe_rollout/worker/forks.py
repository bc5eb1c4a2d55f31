"""Keep journals of committed episodes, and find the turn from which a forked job starts.

A fork that can't be exact is refused before any episode starts, with a workaround.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import structlog

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.context import JobContext
from swe_rollout.errors import UsageError
from swe_rollout.journal.entries import DamagedChunkError, Header
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.journal.kept import (
    VERSION,
    Cutter,
    Kept,
    Stretch,
    check_values,
    decode_kept,
    encode_kept,
    size_of,
)
from swe_rollout.journal.reading import can_be_rebuilt, read_chunk
from swe_rollout.spec.job import ForkSpec, RolloutJob
from swe_rollout.spec.limits import Resume
from swe_rollout.store.damage import DamagedRecordError
from swe_rollout.store.kept import MAX_KEPT_BYTES
from swe_rollout.store.layout import JobRef
from swe_rollout.store.plan import differences
from swe_rollout.store.store import Store
from swe_rollout.text.redaction import holds_secret
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.stored_tasks import stored_job

log = structlog.get_logger()

_AT_A_TIME = 2
"""Journals that a process packs concurrently."""
_SHOWN = 3
_OTHER_TURN = "name another turn"


class JournalKeeper:
    """Keeps the journals of a job's episodes for forks of them."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = store
        self._journals = store.journals(job)
        # Each journal may take several times `MAX_KEPT_BYTES` of memory.
        self._places = asyncio.Semaphore(_AT_A_TIME)

    async def keep(self, trajectory: Trajectory, fork: ForkPoint | None) -> Trajectory:
        """Write what forks of the episode start from; return the record with its name added.

        Do nothing for an episode without a journal, or with one that can't be kept. Raises
        UnreachableError and StoreError.
        """
        if trajectory.journal is not None:
            return trajectory
        async with self._places:
            try:
                kept = await self._cut(trajectory, fork)
            except (DamagedChunkError, FileNotFoundError) as error:
                log.warning("journal_not_kept", why=str(error))
                return trajectory
            if kept is None:
                return trajectory
            data = await off_loop(encode_kept, kept)
            # A credential may have come into use after its chunk was written.
            if holds_secret(data):
                log.warning("journal_not_kept", why="a credential in use is in it")
                return trajectory
            found = await self._store.keep_journal(trajectory.episode, data)
        return replace(trajectory, journal=found)

    async def _cut(self, trajectory: Trajectory, fork: ForkPoint | None) -> Kept | None:
        """Return the part of a journal to keep; None if it has no complete turn."""
        ref = await self._journals.last(trajectory.episode)
        if ref is None:
            return None
        inherited = fork.stretches if fork else ()
        cutter = Cutter(trajectory, inherited)
        header: Header | None = None
        left = MAX_KEPT_BYTES - sum(map(size_of, inherited))
        for number in range(ref.chunks):
            chunk = await read_chunk(ref, number, await self._journals.chunk(ref, number))
            header = header or chunk.header
            left -= size_of(chunk)
            if left < 0:
                log.warning("journal_kept_in_part", turns=cutter.turns, why="it is too large")
                break
            cutter.add(chunk)
        if header is None or header.attempt != trajectory.attempt or not cutter.turns:
            return None
        return Kept(VERSION, header, tuple(cutter.stretches))


async def find_fork_point(
    wanted: ForkSpec, job: RolloutJob, context: JobContext, instances: Sequence[Instance]
) -> ForkPoint:
    """Read the turn from which a job's episodes start.

    Raises UsageError if it does not exist or this job can't fork it, UnreachableError if its store
    does not respond.
    """
    ref = JobRef.parse(wanted.uri)
    store = Store.open(ref.store_uri)
    episode = EpisodeId(ref.job, wanted.instance, wanted.sample)
    _check_spec(await stored_job(store, ref.job), job, episode)
    trajectory = await _committed(store, episode)
    data = await store.read_journal(trajectory)
    try:
        kept = await off_loop(decode_kept, data)
        await off_loop(check_values, kept, trajectory)
    except DamagedChunkError as error:
        raise UsageError(
            f"the journal of {episode} can't be used",
            why=str(error),
            fix="restore it from a backup, or fork another episode",
        ) from error
    _check_header(kept.header, context, episode, instances)
    stretches = _first(kept, wanted.turn, trajectory)
    point = ForkPoint(
        episode,
        wanted.uri,
        wanted.turn,
        hashlib.sha256(data).hexdigest(),
        kept.header,
        stretches,
        trains_inherited=wanted.train_inherited,
    )
    _check_sandbox(point, job)
    return point


async def _committed(store: Store, episode: EpisodeId) -> Trajectory:
    try:
        found = await store.find(episode)
    except DamagedRecordError as error:
        raise UsageError(
            f"{episode} can't be forked", why=str(error), fix="fork another episode"
        ) from error
    if found is not None:
        return found
    if await store.journals(episode.job).last(episode) is not None:
        raise UsageError(
            f"{episode} can't be forked yet",
            why="it is being played, or was broken off: it has a journal and no record",
            fix="wait until it is committed, or run its job again",
        )
    raise UsageError(
        f"{episode} is not in the store",
        why=f"{store.uri} has the job {episode.job}, and no record of this episode",
        fix="swe-rollout status lists the episodes of a job",
    )


def _check_spec(there: RolloutJob, job: RolloutJob, episode: EpisodeId) -> None:
    """Require both jobs to agree on everything that turns depend on."""
    sampling = there.spec.sampling.model_copy(update={"seed": job.spec.sampling.seed})
    free = {"sampling": sampling, "grading": job.spec.grading, "fork": job.spec.fork}
    same = there.model_copy(update={"spec": there.spec.model_copy(update=free)})
    if changes := differences(same, job):
        raise UsageError(
            f"{episode} was played with another spec",
            why="; ".join(changes),
            fix="copy these fields from the job that is forked, as `swe-rollout fork` does; a fork "
            "may change spec.sampling.seed, spec.grading, and how fast and where it runs",
        )


def _check_header(
    then: Header, context: JobContext, episode: EpisodeId, instances: Sequence[Instance]
) -> None:
    """Require the same task, model, tokenizer and user code as the episode's."""
    renderer = context.agent.renderer
    task = next((each for each in instances if each.instance_id == episode.instance), None)
    pairs = {
        "task": (then.instance, task.digest if task else "missing"),
        "model": (then.policy, context.policy(episode)),
        "tokenizer or chat template": (then.tokenizer, renderer.fingerprint if renderer else ""),
        "user code": (then.extensions, tuple(file.sha256 for file in context.extensions)),
    }
    if changes := [
        f"its {name} was {old}, and is {new} now"
        for name, (old, new) in pairs.items()
        if old != new
    ]:
        raise UsageError(
            f"{episode} can't be forked by this job",
            why="; ".join(changes),
            fix="use the dataset, the model and the code that it was played with, or play the task "
            "anew and fork that",
        )


def _first(kept: Kept, turn: int, trajectory: Trajectory) -> tuple[Stretch, ...]:
    """Return what precedes a turn. Raises UsageError if no episode can start there."""
    _check_branches(turn, trajectory)
    points = [each.turns for each in kept.stretches if each.turns]
    if turn not in points:
        raise UsageError(
            f"{trajectory.episode} can't be forked at turn {turn}",
            why=f"it has {len(trajectory.turns)} turns, counted from 0, and its files are kept for "
            f"the beginnings of {_listed(points)}",
            fix=f"{_OTHER_TURN}: {_listed(points)}",
        )
    end = next(at for at, each in enumerate(kept.stretches, start=1) if each.turns == turn)
    return kept.stretches[:end]


def _check_branches(turn: int, trajectory: Trajectory) -> None:
    first = next((each.index for each in trajectory.turns if each.branch), None)
    if first is not None and turn > first:
        raise UsageError(
            f"{trajectory.episode} can't be forked at turn {turn}",
            why=f"turn {first} is of another branch: a sub-agent's, or of a history that was "
            "replaced",
            fix=f"{_OTHER_TURN}, up to {first}",
        )


def _listed(points: Sequence[int]) -> str:
    if not points:
        return "none"
    is_run = list(points) == list(range(points[0], points[-1] + 1))
    return f"{points[0]} to {points[-1]}" if is_run else ", ".join(map(str, points))


def _check_sandbox(point: ForkPoint, job: RolloutJob) -> None:
    if not can_be_rebuilt(point.deltas):
        raise UsageError(
            f"{point} can't be forked",
            why="; ".join(point.deltas[-1].unsaved[:_SHOWN]),
            fix=f"{_OTHER_TURN}: the files of this one could not be saved",
        )
    if point.lost and job.spec.retry.resume is not Resume.BEST:
        raise UsageError(
            f"{point} can't be forked exactly",
            why=f"its sandbox would lack {'; '.join(point.lost[:_SHOWN])}",
            fix=f"{_OTHER_TURN}, or go on without: spec.retry.resume: best",
        )
