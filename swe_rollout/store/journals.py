"""Journals: numbered chunks of an episode that runs, each written once.

The chunk after the last one belongs to whoever creates it, so two processes that go on with one
episode can't both write: the second finds another's chunk in its place. What a chunk means is in
`swe_rollout.journal`. Journals lie beside the episodes, not among them, since those are listed
often; they go when their episode is committed.
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
    """A journal that lies in the store, as it was listed."""

    episode: EpisodeId
    number: int
    """From 1; a higher one replaces those before."""
    chunks: int
    """Chunks up to the first gap."""
    is_whole: bool = True
    """Whether none lies behind a gap."""

    def place(self, number: int) -> str:
        """Return the name of the place of a chunk, which the chunk there has in it."""
        return f"{self.episode}/{self.number}/{number}"


class Journals:
    """The journals of one job."""

    def __init__(
        self, bucket: Bucket, job: str, *, on_chunk: Callable[[], None] | None = None
    ) -> None:
        """`on_chunk` is called after each chunk that is written."""
        self._bucket = bucket
        self._job = job
        self._on_chunk = on_chunk

    def telling(self, on_chunk: Callable[[], None]) -> Journals:
        """Return the same journals, which call this after each chunk that is written."""
        return Journals(self._bucket, self._job, on_chunk=on_chunk)

    async def listed(self) -> Mapping[EpisodeId, JournalRef]:
        """Return the last journal of each episode of the job that has any; one listing."""
        return await self._listed(layout.journals_prefix(self._job))

    async def last(self, episode: EpisodeId) -> JournalRef | None:
        """Return the last journal of an episode; none where it has none."""
        prefix = layout.journals_of(episode)
        found = (await self._listed(prefix)).get(episode)
        if found is None or found.is_whole:
            return found
        # A listing while somebody writes may have a chunk and not the one before. A second has it.
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
        """Return the chunks of a journal. Raises FileNotFoundError when one is gone."""
        chunks: list[bytes] = []
        for start in range(0, ref.chunks, _READ_AHEAD):
            numbers = range(start, min(start + _READ_AHEAD, ref.chunks))
            chunks += await gather_all([self.chunk(ref, number) for number in numbers])
        return chunks

    async def chunk(self, ref: JournalRef, number: int) -> bytes:
        """Return one chunk. Raises FileNotFoundError."""
        return await self._bucket.get(layout.chunk_key(ref.episode, ref.number, number))

    async def create(self, ref: JournalRef, number: int, data: bytes) -> bool:
        """Write a chunk unless there is one; return whether the one that is there is this one.

        True also when an earlier try of this write succeeded without a response.
        """
        key = layout.chunk_key(ref.episode, ref.number, number)
        if await self._bucket.create(key, data):
            if self._on_chunk is not None:
                self._on_chunk()
            return True
        try:
            return await self._bucket.get(key) == data
        except FileNotFoundError:  # the episode was committed meanwhile, and its journal removed
            return False

    def address(self, ref: JournalRef, number: int) -> str:
        """Return where a chunk lies."""
        return f"{self._bucket.uri}/{layout.chunk_key(ref.episode, ref.number, number)}"

    async def set_aside(self, ref: JournalRef) -> str:
        """Move a journal that can't be read among the job's damaged records; return where to.

        Empty where nothing was left to move: another process has removed it.
        """
        unique, moved = secrets.token_hex(4), list[str]()
        for number in sorted(await self._chunks_of(ref)):
            to = layout.damaged_chunk_key(ref.episode, unique, ref.number, number)
            with suppress(FileNotFoundError):  # the episode was committed meanwhile
                await self._bucket.move(layout.chunk_key(ref.episode, ref.number, number), to)
                moved.append(to)
        return f"{self._bucket.uri}/{moved[0]}" if moved else ""

    async def _chunks_of(self, ref: JournalRef) -> Collection[int]:
        """Return the numbers of all chunks of a journal, also behind a gap."""
        keys = self._bucket.keys(layout.journals_of(ref.episode))
        places = [layout.parse_chunk_key(key) async for key in keys]
        return {each.chunk for each in places if each and each.journal == ref.number}

    async def remove(self, episodes: Collection[EpisodeId]) -> None:
        """Delete all journals of episodes that need none any more; one listing for each."""
        for episode in episodes:
            prefix = layout.journals_of(episode)
            keys = [key async for key in self._bucket.keys(prefix)]
            await self._bucket.delete([key for key in keys if layout.parse_chunk_key(key)])


def _ref(episode: EpisodeId, number: int, chunks: Collection[int]) -> JournalRef:
    first_gap = next(number for number in range(len(chunks) + 1) if number not in chunks)
    return JournalRef(episode, number, first_gap, is_whole=first_gap == len(chunks))
