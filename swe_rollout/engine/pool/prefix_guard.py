"""PrefixGuard: verify, before anything is sent, that no sampled id was tokenised again.

For each branch of an episode it keeps the last ids sent and the ids sampled after them, as the text
that went over HTTP. Every further request of the branch must begin with exactly those bytes. It has
a copy of its own, to which each call adds what is new.

An unknown branch may begin with any ids: it is new, or `release` was called for a new attempt. So
may a request at turn 0 after a later turn, the new attempt of a caller that does not release. A
request at turn 0 after turn 0 continues an aborted turn and is checked like any other. A call that
sampled nothing changes nothing: its prompt may be taken back. Used by `pool.pool`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import InternalError
from swe_rollout.tokens.log import encode_ids
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

_Key = tuple["EpisodeId", int]
"""An episode and one of its branches."""
KEPT_BYTES = 512 * 2**20
"""Bytes kept for all episodes together. Beyond it, the least recent callers go unchecked."""


@dataclass(slots=True)
class _Prefix:
    turn: int = 0
    text: bytearray = field(default_factory=bytearray)

    def must_begin(self, request: GenerateRequest) -> bool:
        """Whether the request goes on from here."""
        return request.turn > 0 or self.turn == 0

    def begins(self, request: GenerateRequest) -> bool:
        """Whether the request begins with all of it, id for id."""
        text, end = request.input_ids.text, len(self.text)
        # A bytearray on the left compares memory; an array on the left, each byte.
        return self.text == text[:end] and text[end : end + 1].tobytes() in (b"", b",")


class PrefixGuard:
    """The ids that each branch's next request must begin with; drops the least recently used."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._size = 0
        self._prefixes: OrderedDict[_Key, _Prefix] = OrderedDict()
        self._branches: dict[EpisodeId, set[int]] = {}

    def check(self, request: GenerateRequest) -> None:
        """Raise InternalError unless the request continues the episode's last response."""
        known = self._prefixes.get((request.episode, request.branch))
        if known is not None and known.must_begin(request) and not known.begins(request):
            raise InternalError(
                f"the request of turn {request.turn} does not begin with the ids sampled before",
                why="the policy would be trained on ids that it never read; nothing was sent",
                fix="send the token log unchanged; another rendering is another branch",
            )

    def add(self, request: GenerateRequest, generation: Generation) -> None:
        """Record the ids that were sent and sampled, if any were sampled."""
        if not generation.token_ids:
            return
        key = (request.episode, request.branch)
        known = self._prefixes.get(key)
        self._drop(key)
        if known is None or not known.must_begin(request):
            known = _Prefix()
        known.turn = request.turn
        known.text += request.input_ids.text[len(known.text) :].tobytes()
        known.text += b"," + encode_ids(generation.token_ids)
        self._prefixes[key] = known
        self._branches.setdefault(request.episode, set()).add(request.branch)
        self._size += len(known.text)
        while self._size > self._kept_bytes:
            self._drop(next(iter(self._prefixes)))

    def release(self, episode: EpisodeId) -> None:
        """Accept any ids from the next request of each branch of the episode."""
        for branch in tuple(self._branches.get(episode, ())):
            self._drop((episode, branch))

    def _drop(self, key: _Key) -> None:
        known = self._prefixes.pop(key, None)
        if known is None:
            return
        self._size -= len(known.text)
        episode, branch = key
        branches = self._branches[episode]
        branches.discard(branch)
        if not branches:
            del self._branches[episode]
