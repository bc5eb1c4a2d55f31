"""An attempt that is journaled turn by turn, from its start or from where it was resumed."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace

import structlog

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.outside import runs_in_sandbox
from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import (
    SandboxDestroyedError,
    StoreError,
    UnreachableError,
)
from swe_rollout.journal.base import Journal, Workplace, start
from swe_rollout.journal.entries import Chunk, DamagedChunkError, End, Restored
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.journal.outside import AfterTurns, OutsideJournal
from swe_rollout.journal.reading import Earlier, read
from swe_rollout.journal.restoring import (
    as_it_was,
    begin_from,
    end_orphans,
    header_of,
    rebuild,
    would_lack,
)
from swe_rollout.journal.tape import DivergedError, Tape
from swe_rollout.journal.wrappers import NoTurns, Taped, no_sandbox, playing_on
from swe_rollout.journal.writer import JournalWriter
from swe_rollout.sandbox import workspace
from swe_rollout.sandbox.base import Sandbox, Snapshots
from swe_rollout.sandbox.repository import Patch
from swe_rollout.store.journals import JournalRef, Journals
from swe_rollout.types.episode import Resumption
from swe_rollout.types.turn import Turn

log = structlog.get_logger()


class AttemptJournal(Journal):
    """An attempt that is journaled turn by turn, from its start or from where it was resumed."""

    def __init__(
        self,
        journals: Journals,
        ref: JournalRef,
        earlier: Earlier | None,
        *,
        writer: str,
        fork: ForkPoint | None = None,
        has_orphans: bool = False,
    ) -> None:
        """`ref` is the journal and its next chunk; `writer` names this life of the attempt.

        The last chunk of a resumed journal says so. For a fork, `earlier` includes the inherited
        part. `has_orphans` says that another process may have left sandboxes of the episode.
        """
        self._journals = journals
        self._ref = ref
        self._name = writer
        self._earlier = earlier
        self._fork = fork
        self._has_orphans = has_orphans
        self._restored_as: Restored | None = None
        known = earlier or (fork and fork.earlier(ref))
        self._tape = Tape(known.entries if known else ())
        self._known = known.entries if known else ()
        self._seed = known.header.seed if known else secrets.token_hex(16)
        self._writer: JournalWriter | None = None
        self._is_outside = False

    @property
    def resumption(self) -> Resumption | None:
        earlier, restored = self._earlier, self._restored_as
        if earlier is None:
            return None
        lost = earlier.lost if restored is None else restored.lost
        return Resumption(
            earlier.resumed + 1,
            tuple(dict.fromkeys((*earlier.lost_before, *lost))),
            earlier.attached + (restored is not None and restored.attached),
        )

    @property
    def goes_on(self) -> bool:
        """Whether an earlier life of the attempt has written anything."""
        return self._earlier is not None

    @property
    def is_begun(self) -> bool:
        """Whether the store may hold part of this journal."""
        return self._earlier is not None or (self._writer is not None and self._writer.is_begun)

    @property
    def had_sandbox(self) -> bool:
        """Whether the attempt had a sandbox whose turns can be written."""
        return self._writer is not None

    @property
    def written(self) -> int:
        """The number of chunks that this life made durable."""
        return self._writer.written if self._writer else 0

    async def begin(self, attempt: Attempt, context: JobContext) -> Workplace:
        if self._earlier is not None:
            return await self._restored(attempt, context, self._earlier)
        if self._has_orphans:
            await end_orphans(attempt, context)
        if self._fork is not None:
            place = await begin_from(self._fork, attempt, context)
        else:
            # The recorded state of a plain folder says nothing about a rebuilt sandbox.
            is_repository = attempt.instance.folder is None
            place = await start(attempt, context, snapshots=is_repository)
        sandbox = place.sandbox
        # A plain folder on this machine is a different one in each life.
        is_same_place = sandbox.workdir == attempt.instance.workdir
        if is_same_place and isinstance(place.base, str) and isinstance(sandbox, Snapshots):
            header = header_of(
                attempt, context, seed=self._seed, workdir=sandbox.workdir, base=place.base
            )
            self._writer = JournalWriter(
                self._journals, self._ref, self._tape, sandbox, writer=self._name, header=header
            )
        return place

    async def _restored(self, attempt: Attempt, context: JobContext, earlier: Earlier) -> Workplace:
        base, workdir = earlier.header.base, earlier.header.workdir
        if earlier.end is not None:
            # The agent needs no sandbox any more, so none is started in place of the old one.
            await end_orphans(attempt, context)
            return Workplace(no_sandbox(workdir), base)
        sandbox = await self._attached(attempt, context, earlier)
        is_attached = sandbox is not None
        if sandbox is None:
            if runs_in_sandbox(context.program):
                raise DivergedError("its program ended with its sandbox")
            if why := would_lack(earlier, context):
                raise DivergedError(why)
            sandbox = await context.start_sandbox(attempt, snapshots=True)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(sandbox.close)
            if is_attached:
                snapshots = as_it_was(sandbox, earlier)
            else:
                snapshots = await rebuild(sandbox, earlier)
            undo.pop_all()
        self._restored_as = Restored(is_attached, () if is_attached else earlier.lost)
        self._writer = JournalWriter(
            self._journals,
            self._ref,
            self._tape,
            snapshots,
            writer=self._name,
            restored=self._restored_as,
        )
        return Workplace(sandbox, base)

    async def _attached(
        self, attempt: Attempt, context: JobContext, earlier: Earlier
    ) -> Sandbox | None:
        """Return the previous life's sandbox if it matches the journal; end all others."""
        sandbox = None
        if earlier.mark is not None and earlier.deltas:
            # Nobody else ever writes the chunk with this number, so no other life has this number.
            life, delta = self._ref.chunks, earlier.deltas[-1].number
            mark = earlier.mark
            if runs_in_sandbox(context.program):
                mark = replace(mark, effects=-1)  # Nobody knows what it has done since.
            sandbox = await context.attach_sandbox(attempt, mark, life=life, delta=delta)
        async with AsyncExitStack() as undo:
            if sandbox is not None:
                undo.push_async_callback(sandbox.close)
            await end_orphans(attempt, context)
            undo.pop_all()
        return sandbox

    def agent_context(
        self,
        attempt: Attempt,
        context: JobContext,
        place: Workplace,
        *,
        on_turn: Callable[[Turn], None],
    ) -> AgentContext:
        self._is_outside = runs_in_sandbox(context.program)
        agent = super().agent_context(attempt, context, place, on_turn=on_turn)
        if self._is_outside and (self._writer or self._earlier):
            writer = self._writer or NoTurns(self._tape)
            agent.outside = OutsideJournal(self._tape, writer, place.sandbox, self._known)
        return agent

    def _taped(self) -> Taped | None:
        if self._writer is None and self._earlier is None:
            return None
        barriers = self._writer or NoTurns(self._tape)
        return Taped(self._tape, AfterTurns() if self._writer and self._is_outside else barriers)

    @contextmanager
    def playing(self) -> Iterator[None]:
        with playing_on(self._tape, self._seed):
            yield

    async def finish(self, place: Workplace) -> Patch:
        self._tape.require_end()
        if self._earlier is not None and self._earlier.end is not None:
            return Patch(self._earlier.end.patch, self._earlier.end.problem)
        patch = await super().finish(place)
        if self._writer is not None:
            await self._writer.end(End(patch.text, patch.problem))
        return patch

    async def salvage(self, attempt: Attempt, context: JobContext) -> Patch:
        await self.aclose()
        earlier = await self._durable()
        if earlier is None or not earlier.can_be_rebuilt:
            return Patch()
        sandbox = await context.start_sandbox(attempt, snapshots=True)
        try:
            await rebuild(sandbox, earlier)
            return await workspace.diff(sandbox, earlier.header.base)
        except (SandboxDestroyedError, DivergedError) as error:
            # Work that destroys every sandbox in which it is restored can't be graded.
            log.warning("nothing_salvaged", episode=str(self._ref.episode), why=str(error))
            return Patch()
        finally:
            await sandbox.close()

    async def _durable(self) -> Earlier | None:
        """Read what this and earlier lives have written; return None if there is nothing."""
        try:
            ref = await self._journals.last(self._ref.episode)
            if ref is None or ref.number != self._ref.number or not ref.chunks:
                return self._fork.earlier(self._ref) if self._fork else None
            found = await read(ref, await self._journals.read(ref))
            return self._fork.before(found) if self._fork else found
        except (DamagedChunkError, FileNotFoundError) as error:
            log.warning("nothing_salvaged", episode=str(self._ref.episode), why=str(error))
            return None
        except UnreachableError as error:
            raise StoreError(error.what, why=error.why, fix=error.fix) from error

    async def aclose(self) -> None:
        """Wait for the write in progress, and write nothing more."""
        if self._writer is not None:
            await self._writer.aclose()


def new_writer() -> str:
    """Return a name for one life of an attempt that people can trace to its process."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"


def mark_resumed(writer: str) -> Chunk:
    """Return the chunk with which a life of an attempt claims a journal."""
    return Chunk(writer, resumes=True)


def mark_closed(writer: str) -> Chunk:
    """Return the chunk that closes a journal, so that nobody resumes from it."""
    return Chunk(writer, closes=True)
