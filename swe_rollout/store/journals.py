"""Journals: numbered chunks of a running episode, each written once.

The next chunk belongs to whoever creates it, so two processes that resume the same episode can't
both write: the second finds the other's chunk in its place. `swe_rollout.journal` defines the
chunks. Journals lie beside the episodes' folder, which is listed often, and are deleted when their
episode is committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from swe_rollout.errors import gather_all
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.types.episode import EpisodeId

_READ_AHEAD = 8


@dataclass(frozen=True, slots=True)
class JournalRef:
    """A journal in the store, as listed."""

    episode: EpisodeId
    number: int
    """Number from 1; a higher number replaces lower ones."""
    chunks: int
    """Number of chunks before the first gap."""
    is_whole: bool = True
    """Whether no chunk follows a gap."""

    def place(self, number: int) -> str:
        """Return the identifier of a chunk's place, which the chunk itself contains."""
        return f"{self.episode}/{self.number}/{number}"


class Journals:
    """The journals of one job."""

    def __init__(
        self, bucket: Bucket, job: str, *, on_chunk: Callable[[], None] | None = None
    ) -> None:
        """`on_chunk` is called after each written chunk."""
        self._bucket = bucket
        self._job = job
        self._on_chunk = on_chunk

    def telling(self, on_chunk: Callable[[], None]) -> Journals:
        """Return the same journals, with `on_chunk` called after each written chunk."""
        return Journals(self._bucket, self._job, on_chunk=on_chunk)

    async def listed(self) -> Mapping[EpisodeId, JournalRef]:
        """Return the last journal of each episode that has one, from a single listing."""
        return await self._listed(layout.journals_prefix(self._job))

    async def last(self, episode: EpisodeId) -> JournalRef | None:
        """Return the last journal of an episode, or None."""
        prefix = layout.journals_of(episode)
        found = (await self._listed(prefix)).get(episode)
        if found is None or found.is_whole:
            return found
        # A listing during a write may show a chunk but not the one before; a second shows both.
        return (await self._listed(prefix)).get(episode)

    async def _listed(self, prefix: str) -> Mapping[EpisodeId, JournalRef]:
        found: dict[EpisodeId, dict[int, set[int]]] = {}
        async for key in self._bucket.keys(prefix):
            place = layout.parse_chunk_key(key)
            if place is not None:
                episode = EpisodeId(self._job, place.instance, place.sample)
                journals = found.setdefault(episode, {})
                journals.setdefault(place.journal, set()).add(place.chunk)
        return {
            episode: _ref(episode, max(journals), journals[max(journals)])
            for episode, journals in found.items()
        }

    async def read(self, ref: JournalRef) -> Sequence[bytes]:
        """Return the chunks of a journal. Raises FileNotFoundError if one is gone."""
        chunks: list[bytes] = []
        for start in range(0, ref.chunks, _READ_AHEAD):
            numbers = range(start, min(start + _READ_AHEAD, ref.chunks))
            chunks += await gather_all([self.chunk(ref, number) for number in numbers])
        return chunks

    async def chunk(self, ref: JournalRef, number: int) -> bytes:
        """Return one chunk. Raises FileNotFoundError."""
        return await self._bucket.get(layout.chunk_key(ref.episode, ref.number, number))

    async def create(self, ref: JournalRef, number: int, data: bytes) -> bool:
        """Write a chunk unless one exists; return whether the existing one is this one.

        So True also means that an earlier attempt succeeded without a response.
        """
        key = layout.chunk_key(ref.episode, ref.number, number)
        if await self._bucket.create(key, data):
            if self._on_chunk is not None:
                self._on_chunk()
            return True
        try:
            return await self._bucket.get(key) == data
        except FileNotFoundError:  # committed meanwhile, and so removed
            return False

    def address(self, ref: JournalRef, number: int) -> str:
        """Return the address of a chunk."""
        return f"{self._bucket.uri}/{layout.chunk_key(ref.episode, ref.number, number)}"

    async def set_aside(self, ref: JournalRef) -> str:
        """Move an unreadable journal to the job's damaged records; return its new address.

        The address is empty if another process has already removed the journal.
        """
        unique, moved = secrets.token_hex(4), list[str]()
        for number in sorted(await self._chunks_of(ref)):
            to = layout.damaged_chunk_key(ref.episode, unique, ref.number, number)
            with suppress(FileNotFoundError):  # the episode was committed meanwhile
                await self._bucket.move(layout.chunk_key(ref.episode, ref.number, number), to)
                moved.append(to)
        return f"{self._bucket.uri}/{moved[0]}" if moved else ""

    async def _chunks_of(self, ref: JournalRef) -> Collection[int]:
        """Return the numbers of all chunks of a journal, including those after a gap."""
        keys = self._bucket.keys(layout.journals_of(ref.episode))
        places = [layout.parse_chunk_key(key) async for key in keys]
        return {each.chunk for each in places if each and each.journal == ref.number}

    async def remove(self, episodes: Collection[EpisodeId]) -> None:
        """Delete all journals of these episodes, with one listing for each."""
        for episode in episodes:
            prefix = layout.journals_of(episode)
            keys = [key async for key in self._bucket.keys(prefix)]
            await self._bucket.delete([key for key in keys if layout.parse_chunk_key(key)])


def _ref(episode: EpisodeId, number: int, chunks: Collection[int]) -> JournalRef:
    first_gap = next(number for number in range(len(chunks) + 1) if number not in chunks)
    return JournalRef(episode, number, first_gap, is_whole=first_gap == len(chunks))
