"""JournalWriter: make each turn durable while the next one is sampled.

While the engine samples turn k+1, all results of turn k (its tokens, the results of its calls and
their changes in the sandbox) are written as one chunk. No call of turn k+1 runs before that chunk
is durable. So a process that dies loses only the turn in flight, and no command ever builds on lost
work.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import Final

import msgspec
import structlog
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from swe_rollout.errors import EpisodeError, SandboxError, SweRolloutError, UnreachableError
from swe_rollout.journal.entries import (
    MAX_CHUNK_BYTES,
    Chunk,
    DamagedChunkError,
    Delta,
    End,
    Entry,
    Header,
    Restored,
    compress,
    decode,
    encode,
)
from swe_rollout.journal.tape import Tape
from swe_rollout.sandbox.base import Markable, SandboxDelta, SandboxMark, Snapshots
from swe_rollout.sandbox.session.walk import records_of
from swe_rollout.store.journals import JournalRef, Journals
from swe_rollout.text.redaction import has_secrets, holds_secret
from swe_rollout.types.retrying import retried

log = structlog.get_logger()

PATIENCE_S: Final = 60.0
"""How long a turn waits for an unresponsive store, with its episode's clock stopped. Then the
episode continues without a journal; its commit waits longer."""
_SHORT_BYTES: Final = 1 << 14
"""To pack this much takes less than to hand it to a thread."""


class TakenOverError(SweRolloutError):
    """Another process has taken over this episode; this one stops and commits nothing."""

    def __init__(self, address: str, writer: str) -> None:
        super().__init__(
            "another process has taken over this episode",
            why=f"{address} was written by {writer}",
            fix="run one worker for each shard of a job, and one `swe-rollout run` for a job",
        )


class JournalWriter:
    """Writes one journal. Its methods are the barriers before requests to the outside world."""

    def __init__(
        self,
        journals: Journals,
        ref: JournalRef,
        tape: Tape,
        sandbox: Snapshots,
        *,
        writer: str,
        header: Header | None = None,
        restored: Restored | None = None,
    ) -> None:
        """`ref.chunks` is the number of the next chunk; `header` is given for a new journal,
        `restored` for a resumed one.
        """
        self._journals = journals
        self._ref = ref
        self._next = ref.chunks
        self._tape = tape
        self._sandbox = sandbox
        self._writer = writer
        self._header = header
        self._restored = restored
        self._walk: asyncio.Task[tuple[SandboxMark | None, Delta]] | None = None
        self._pending: asyncio.Task[None] | None = None
        self._is_over = False
        self.written = 0
        """Number of durable chunks."""

    @property
    def is_begun(self) -> bool:
        """Whether a write was started."""
        return self._pending is not None

    async def before_turn(self) -> None:
        """Start writing the results of earlier turns; the engine may sample meanwhile."""
        await self._settled()
        if self._is_over or not self._tape.is_quiet:
            return
        if entries := self._tape.take_noted():
            self._walk = asyncio.create_task(self._look(), name="journal: changes")
            self._pending = asyncio.create_task(self._write(entries, self._walk), name="journal")

    async def before_call(self) -> None:
        """Wait until everything that the engine knew when it sampled the last turn is durable."""
        await self._settled()

    async def end(self, end: End) -> None:
        """Start writing that the agent has ended. Raises TakenOverError."""
        await self._settled()
        if not self._is_over:
            chunk = Chunk(
                self._writer,
                self._header,
                self._tape.take_noted(),
                restored=self._restored,
                end=end,
            )
            self._pending = asyncio.create_task(self._append(chunk), name="journal")

    async def aclose(self) -> None:
        """Wait for the write in progress, then write no more. Never raises for a failed write."""
        self._is_over = True
        if self._pending is not None:
            try:
                await asyncio.wait({self._pending})
            finally:
                self._pending.cancel()
                if self._walk is not None:
                    self._walk.cancel()
            self._pending.exception()  # it was raised to the waiting caller, or no longer matters

    async def _settled(self) -> None:
        if self._is_over:
            self._tape.take_noted()
        if self._pending is None:
            return
        if self._walk is not None:
            # The time this takes depends on the episode's files, so its clock runs.
            await asyncio.wait({self._walk})
        if not self._pending.done():
            clock = self._tape.clock
            with nullcontext() if clock is None else clock.paused():
                await asyncio.wait({self._pending})
        self._pending.result()

    async def _look(self) -> tuple[SandboxMark | None, Delta]:
        """Return the sandbox's location and changes. No call starts meanwhile."""
        found = await self._sandbox.mark() if isinstance(self._sandbox, Markable) else None
        return found, Delta.of(await self._sandbox.changes())

    async def _write(
        self, entries: tuple[Entry, ...], walk: asyncio.Task[tuple[SandboxMark | None, Delta]]
    ) -> None:
        try:
            mark, delta = await walk
        except EpisodeError as error:
            # A lost sandbox fails the next command as well.
            self._give_up(f"the sandbox's changes can't be taken: {error}")
            return
        await self._append(Chunk(self._writer, self._header, entries, delta, mark, self._restored))

    async def _append(self, chunk: Chunk) -> None:
        try:
            placed = msgspec.structs.replace(chunk, place=self._ref.place(self._next))
            data = encode(placed)
            pack = partial(_packed, data, placed.delta)
            stored = pack() if len(data) <= _SHORT_BYTES else await asyncio.to_thread(pack)
        except ValueError as error:
            self._give_up(str(error))
            return
        creating = partial(self._journals.create, self._ref, self._next, stored)
        try:
            is_ours = await retried(creating, _patient)
        except UnreachableError as error:
            self._give_up(str(error))
            return
        if not is_ours:
            self._is_over = True
            raise await self._taken_over()
        self._next += 1
        self._header = self._restored = None
        self.written += 1

    async def _taken_over(self) -> TakenOverError:
        address = self._journals.address(self._ref, self._next)
        try:
            there = decode(await self._journals.chunk(self._ref, self._next)).writer
        except (DamagedChunkError, FileNotFoundError, UnreachableError):
            there = "an unknown process"
        return TakenOverError(address, there)

    def _give_up(self, why: str) -> None:
        """Write nothing more; the existing chunks can still be resumed from."""
        self._is_over = True
        log.warning("journal_ends", episode=str(self._ref.episode), chunks=self._next, why=why)


def _patient() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception_type(UnreachableError),
        stop=stop_after_delay(PATIENCE_S),
        wait=wait_exponential(multiplier=0.2, max=5),
        reraise=True,
    )


def _packed(data: bytes, delta: Delta | None) -> bytes:
    """Return the stored form of a chunk's `data`. Raises ValueError if it can't be stored."""
    if holds_secret(data) or (delta is not None and _holds_secret(delta)):
        raise ValueError("a credential in use was in what a command returned")
    if len(data) > MAX_CHUNK_BYTES:
        raise ValueError(f"a turn takes {len(data)} bytes")
    return compress(data)


def _holds_secret(delta: Delta) -> bool:
    """Whether a file in the compressed delta contains a credential in use."""
    if not has_secrets() or not delta.data:
        return False
    try:
        return holds_secret(records_of(SandboxDelta(delta.number, delta.data)))
    except SandboxError:  # another kind of sandbox, whose format is unknown
        return holds_secret(delta.data)
