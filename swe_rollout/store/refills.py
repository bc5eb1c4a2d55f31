"""Which sample replaces a failed one.

In a job of n samples, sample i is followed by i + n, then i + 2n, so every record keeps its
address. The committed record of a failure is the decision to replace it: any process derives the
same replacement from the store alone, and nothing is lost or doubled between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from swe_rollout.types.episode import EpisodeId, Failure


def replacement(
    episode: EpisodeId, failure: Failure | None, *, wanted: int, refills: int, first: int = 0
) -> EpisodeId | None:
    """Return the sample that replaces one of a group of `wanted`, numbered from `first` on.

    None if it did not fail, would fail again, or was replaced `refills` times.
    """
    if failure is None or not failure.retryable:
        return None
    return _following(episode, wanted=wanted, refills=refills, first=first)


def _following(
    episode: EpisodeId, *, wanted: int, refills: int, first: int = 0
) -> EpisodeId | None:
    if (episode.sample - first) // wanted >= refills:
        return None
    return replace(episode, sample=episode.sample + wanted)


class Refills:
    """The replacements in the groups of a job, as far as one process knows them."""

    def __init__(
        self, sizes: Mapping[str, int], limit: int, committed: Iterable[EpisodeId] = ()
    ) -> None:
        """`sizes` holds the planned samples of each task; `limit` is how often one is replaced."""
        self._sizes = sizes
        self.limit = limit
        """How often a failed sample is replaced."""
        self.known = {each for each in committed if self.holds(each)}
        """Replacements that are committed or were decided on."""

    @property
    def below(self) -> int:
        """Return the number that no sample reaches."""
        return max(self._sizes.values(), default=0) * (1 + self.limit)

    def size(self, instance: str) -> int:
        """Return the number of samples that make up a group."""
        return self._sizes[instance]

    def holds(self, episode: EpisodeId, *, samples: int | None = None) -> bool:
        """Whether an episode can replace another, one of the first `samples` of its task if given.

        It is false for the other samples of a plan.
        """
        size = self._sizes.get(episode.instance, 0)
        place = episode.sample % size if size else 0
        wanted = samples is None or place < samples
        return size <= episode.sample < size * (1 + self.limit) and wanted

    def following(self, episode: EpisodeId) -> EpisodeId | None:
        """Return the sample that replaces one whose failure is retryable, if any does."""
        wanted = self._sizes.get(episode.instance)
        if wanted is None:
            return None
        return _following(episode, wanted=wanted, refills=self.limit)

    def decide(self, episode: EpisodeId, failure: Failure | None) -> EpisodeId | None:
        """Return the sample to play in place of a committed one, but each only once."""
        if failure is None or not failure.retryable:
            return None
        found = self.following(episode)
        if found is None or found in self.known:
            return None
        self.known.add(found)
        return found
