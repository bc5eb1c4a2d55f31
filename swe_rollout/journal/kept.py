"""The part of a committed episode's journal that is kept, so that forks can start from its turns.

It holds the journal's responses and deltas, split where a turn and its calls were complete, but not
who wrote them or how often the episode was resumed. Like a chunk, the stored object is not trusted:
`decode_kept` checks its shape, `check_values` the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from swe_rollout.journal.entries import (
    Chunk,
    DamagedChunkError,
    Delta,
    Entry,
    Header,
    Said,
    Sampled,
)
from swe_rollout.journal.reading import check_entries
from swe_rollout.types.trajectory import Trajectory

VERSION: Final = 1
_HEX: Final = re.compile(r"(?:[0-9a-f]{2}){1,64}")
_COMMIT: Final = re.compile(r"[0-9a-f]{4,64}")


class Stretch(msgspec.Struct, frozen=True):
    """The part after the previous stretch, up to the end of a turn and its calls."""

    turns: int
    """Number of complete turns of the episode by then."""
    entries: tuple[Entry, ...]
    deltas: tuple[Delta, ...]
    """Changes of the sandbox; the last one is of that moment."""


class Kept(msgspec.Struct, frozen=True):
    """The stored form."""

    version: int
    header: Header
    stretches: tuple[Stretch, ...]


_DECODER: Final = msgspec.msgpack.Decoder(Kept)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_kept(kept: Kept) -> bytes:
    """Encode to bytes. Raises ValueError for text that UTF-8 can't encode."""
    return _ENCODER.encode(kept)


def decode_kept(data: bytes) -> Kept:
    """Decode the stored form. Raises DamagedChunkError for anything else."""
    try:
        kept = _DECODER.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedChunkError(f"{type(error).__name__}: {error}"[:300]) from error
    if kept.version != VERSION:
        raise DamagedChunkError(f"it has the format {kept.version}; this version reads {VERSION}")
    return kept


# Create it once, here: msgspec must not inspect a class in two threads at once.
_EMPTY: Final = Header(1, "", (), "", "", "", "", "", "")
decode_kept(encode_kept(Kept(VERSION, _EMPTY, (Stretch(0, (), (Delta(1, b""),)),))))


class Cutter:
    """Splits a journal's chunks, taken in order, where the turns of its record end."""

    def __init__(self, trajectory: Trajectory, inherited: Sequence[Stretch] = ()) -> None:
        """`inherited` precedes the first chunk, for an episode that started as a fork."""
        self.stretches = list(inherited)
        self._ends = _turn_ends(trajectory)
        self._sampled = sum(_sampled_in(entry) for each in inherited for entry in each.entries)
        self._entries: list[Entry] = []
        self._deltas: list[Delta] = []

    @property
    def turns(self) -> int:
        """The number of complete turns so far."""
        return self.stretches[-1].turns if self.stretches else 0

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        self._entries += chunk.entries
        self._sampled += sum(map(_sampled_in, chunk.entries))
        if chunk.delta is None:
            return
        self._deltas.append(chunk.delta)
        # Chunks may end within a turn that was aborted and continued.
        if (turns := self._ends.get(self._sampled)) is not None:
            self.stretches.append(Stretch(turns, tuple(self._entries), tuple(self._deltas)))
            self._entries, self._deltas = [], []


def size_of(part: Chunk | Stretch) -> int:
    """Return its unpacked size in bytes."""
    return len(_ENCODER.encode(part))


def _turn_ends(trajectory: Trajectory) -> dict[int, int]:
    """Return the number of turns by the amount sampled up to the end of each."""
    is_chat = trajectory.chat is not None
    total, ends = 0, {0: 0}
    for count, turn in enumerate(trajectory.turns, start=1):
        total += 1 if is_chat else turn.completion_tokens
        ends[total] = count
    return ends


def _sampled_in(entry: Entry) -> int:
    match entry.answer:
        case Sampled(ids=ids):
            return len(ids) // 4
        case Said():
            return 1
        case _:
            return 0


def check_values(kept: Kept, trajectory: Trajectory) -> None:
    """Raise DamagedChunkError for values that this record's episode can't have written."""
    header = kept.header
    if not _HEX.fullmatch(header.seed) or not _COMMIT.fullmatch(header.base):
        raise DamagedChunkError("its header is none")
    if (header.spec, header.policy) != (trajectory.spec_digest, trajectory.policy):
        raise DamagedChunkError("it is of another episode than its record")
    turns = [stretch.turns for stretch in kept.stretches]
    if turns != sorted(turns) or any(not 0 <= each <= len(trajectory.turns) for each in turns):
        raise DamagedChunkError("its turns are in no order")
    if any(not stretch.deltas for stretch in kept.stretches):
        raise DamagedChunkError("a turn has no files")
    for stretch in kept.stretches:
        check_entries(stretch.entries)
    if trajectory.chat is None:
        _check_ids(kept.stretches, trajectory)


def _check_ids(stretches: Sequence[Stretch], trajectory: Trajectory) -> None:
    """Compare the sampled ids with the record's main branch, up to the first other branch."""
    columns = zip(trajectory.token_ids, trajectory.loss_mask, strict=True)
    recorded = [token for token, mask in columns if mask]
    position = 0
    for stretch in stretches:
        if any(turn.branch for turn in trajectory.turns[: stretch.turns]):
            return
        for entry in stretch.entries:
            if isinstance(entry.answer, Sampled):
                found = entry.answer.value().token_ids
                if list(found) != recorded[position : position + len(found)]:
                    raise DamagedChunkError("its tokens are not those of the record")
                position += len(found)
        if position != sum(each.completion_tokens for each in trajectory.turns[: stretch.turns]):
            raise DamagedChunkError("its turns do not end where those of the record do")
