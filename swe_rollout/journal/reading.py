"""Read a journal back, to learn how far an earlier life of an attempt got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.journal.entries import (
    Chunk,
    DamagedChunkError,
    Delta,
    End,
    Entry,
    Header,
    Restored,
    Said,
    Sampled,
    decode,
)
from swe_rollout.journal.tape import TURN
from swe_rollout.sandbox.base import SandboxDelta, SandboxMark
from swe_rollout.store.journals import JournalRef

_WHOLE: Final = "/: "
"""Prefix of the reason why no delta could be taken."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The content of a journal's chunks."""

    ref: JournalRef
    header: Header
    entries: tuple[Entry, ...]
    deltas: tuple[Delta, ...]
    end: End | None
    resumed: int
    """How often the journal was resumed."""
    is_closed: bool
    mark: SandboxMark | None = None
    """Where the sandbox was at the end of the last turn; None if nobody could attach to it."""
    restored: tuple[Restored, ...] = ()
    """How later lives that wrote a turn obtained their sandboxes."""

    @property
    def lost_before(self) -> tuple[str, ...]:
        """What the sandboxes rebuilt so far lacked."""
        return tuple(dict.fromkeys(lost for each in self.restored for lost in each.lost))

    @property
    def attached(self) -> int:
        """How often a life attached to the previous life's sandbox."""
        return sum(each.attached for each in self.restored)

    @property
    def lost(self) -> tuple[str, ...]:
        """What a rebuilt sandbox lacks: unsaved files and running processes."""
        if self.end is not None:
            return ()  # The agent's work was taken from a sandbox that had all.
        return (*unsaved_in(self.deltas), *running_in(self.deltas))

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether the sandbox's last state is known or no longer needed."""
        return self.end is not None or can_be_rebuilt(self.deltas)


def unsaved_in(deltas: Sequence[Delta]) -> tuple[str, ...]:
    """Return the files missing from a sandbox rebuilt from these deltas, with reasons."""
    found = [each for delta in deltas for each in delta.unsaved if _is_of_a_file(each)]
    return tuple(dict.fromkeys(found))


def running_in(deltas: Sequence[Delta]) -> tuple[str, ...]:
    """Return the processes running at the last delta, which a rebuilt sandbox lacks."""
    return tuple(f"process: {command}" for command in (deltas[-1].processes if deltas else ()))


def can_be_rebuilt(deltas: Sequence[Delta]) -> bool:
    """Whether the files at the last delta are known."""
    return all(map(_is_of_a_file, deltas[-1].unsaved if deltas else ()))


def sandbox_deltas(deltas: Sequence[Delta]) -> tuple[SandboxDelta, ...]:
    """Return the deltas to apply to a fresh sandbox, in order."""
    return tuple(SandboxDelta(each.number, each.data) for each in deltas if each.data)


async def read(ref: JournalRef, stored: Sequence[bytes]) -> Earlier:
    """Read the chunks of a journal. Raises DamagedChunkError for an invalid one."""
    if not ref.is_whole:
        raise DamagedChunkError(f"its chunk {ref.chunks} is missing, and there are later ones")
    chunks = [await read_chunk(ref, number, data) for number, data in enumerate(stored)]
    return Earlier(
        ref,
        _header_of(chunks),
        tuple(entry for chunk in chunks for entry in chunk.entries),
        tuple(chunk.delta for chunk in chunks if chunk.delta is not None),
        next((chunk.end for chunk in chunks if chunk.end is not None), None),
        sum(chunk.resumes for chunk in chunks),
        any(chunk.closes for chunk in chunks),
        next((chunk.mark for chunk in reversed(chunks) if chunk.delta is not None), None),
        tuple(chunk.restored for chunk in chunks if chunk.restored is not None),
    )


def _header_of(chunks: Sequence[Chunk]) -> Header:
    if not chunks or chunks[0].header is None:
        raise DamagedChunkError("its first chunk has no header")
    if any(chunk.header is not None for chunk in chunks[1:]):
        raise DamagedChunkError("it has several headers")
    return chunks[0].header


async def read_chunk(ref: JournalRef, number: int, stored: bytes) -> Chunk:
    """Read one chunk of a journal.

    Raises DamagedChunkError if it belongs elsewhere or no episode can have written it.
    """
    chunk = await off_loop(decode, stored)
    if chunk.place != ref.place(number):
        where = chunk.place or "an unknown place"
        raise DamagedChunkError(f"what lies at {ref.place(number)} was written to {where}")
    if chunk.entries and chunk.delta is None and chunk.end is None:
        raise DamagedChunkError("a turn has no files")
    await off_loop(check_entries, chunk.entries)
    return chunk


def check_entries(entries: Sequence[Entry]) -> None:
    """Raise DamagedChunkError for impossible responses, which must not reach an agent."""
    for entry in entries:
        _check_entry(entry)


def _check_entry(entry: Entry) -> None:
    times = [entry.elapsed_s, 0.0 if entry.remaining_s is None else entry.remaining_s]
    if not all(map(isfinite, times)) or entry.elapsed_s < 0:
        raise DamagedChunkError("a time is no time")
    is_turn = isinstance(entry.answer, Sampled | Said)
    if is_turn and not entry.request.startswith(f"{TURN}:"):
        raise DamagedChunkError("a turn answers no request for one")
    if isinstance(entry.answer, Sampled):
        try:
            found = entry.answer.value()
        except (ValueError, TypeError) as error:
            raise DamagedChunkError(f"what was sampled can't be read: {error}") from error
        if len(found.token_ids) != len(found.logprobs) or not all(map(isfinite, found.logprobs)):
            raise DamagedChunkError("its tokens and their logprobs are not equally many numbers")


def _is_of_a_file(unsaved: str) -> bool:
    return not unsaved.startswith(_WHOLE)
