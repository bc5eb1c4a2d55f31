"""Affinity: which server an episode calls. Pure; no server is contacted here.

Each instance ranks the servers in its own order (rendezvous hashing), so its samples share one
prefix cache, and the loss of a server moves only the episodes on it. A server takes at most a
quarter more than its share; the excess goes to the next in the ranking. Used by `pool.pool`.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping

from swe_rollout.types.episode import EpisodeId

_OVERLOAD = 1.25
MAX_EPISODES = 65_536
"""The most assignments to keep, for callers that never release an episode."""


class Affinity:
    """The server of each episode, until it is assigned to another one or released."""

    def __init__(self, *, max_episodes: int = MAX_EPISODES) -> None:
        self._max_episodes = max_episodes
        self._urls: OrderedDict[EpisodeId, str] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def url_of(self, episode: EpisodeId) -> str | None:
        """Return the address of the episode's server; None if it has none yet."""
        return self._urls.get(episode)

    def assign(self, episode: EpisodeId, foreign_calls: Mapping[str, int]) -> str:
        """Assign the episode to one of the servers, at least one, and return its address.

        `foreign_calls`: running or waiting generations of other clients, by address.
        """
        self.release(episode)
        loads = {url: self._counts[url] + calls for url, calls in foreign_calls.items()}
        bound = math.ceil(_OVERLOAD * (sum(loads.values()) + 1) / len(loads))
        ranking = sorted(loads, key=lambda url: _rank(episode, url))
        url = next(url for url in ranking if loads[url] < bound)
        self._urls[episode] = url
        self._counts[url] += 1
        if len(self._urls) > self._max_episodes:
            self.release(next(iter(self._urls)))
        return url

    def release(self, episode: EpisodeId) -> None:
        """Remove the assignment of the episode, if there is one."""
        url = self._urls.pop(episode, None)
        if url is not None:
            self._counts[url] -= 1


def _rank(episode: EpisodeId, url: str) -> bytes:
    return hashlib.sha256(f"{episode.job}/{episode.instance} {url}".encode()).digest()
