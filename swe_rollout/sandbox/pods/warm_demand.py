"""WarmDemand: which sandboxes are expected next, and how many pods of each image to keep ready.

Pure bookkeeping of `warm_pool`, which starts and retires the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.spec.sandbox import WarmPods
from swe_rollout.types.episode import EpisodeId


class WarmDemand:
    """The requests that are expected and have not been made yet, soonest first."""

    def __init__(self) -> None:
        self._expected: list[SandboxRequest] = []
        self._requested: set[tuple[EpisodeId, Role]] = set()
        """Those of the expected sandboxes that have been requested since."""

    def __bool__(self) -> bool:
        """Whether any request is expected."""
        return bool(self._expected)

    def expect(self, requests: Sequence[SandboxRequest]) -> None:
        """Replace the expected requests."""
        self._requested &= {_key(request) for request in requests}
        self._expected = list(requests)
        self._drop_requested()

    def fulfil(self, request: SandboxRequest) -> None:
        """Record that a sandbox was requested: no pod needs to be kept for it any more."""
        self._requested.add(_key(request))
        self._drop_requested()

    @property
    def images(self) -> Counter[str]:
        """How many of the expected requests need each image."""
        return Counter(request.image for request in self._expected)

    @property
    def longest_deadline_s(self) -> float:
        """The longest deadline among the expected requests, of which there must be one."""
        return max(request.deadline_s for request in self._expected)

    def missing(self, existing: Mapping[str, int], limits: WarmPods) -> Iterator[str]:
        """Yield the image of each pod to start, beyond the `existing` ones, within the limits."""
        have = Counter(existing)
        wanted: Counter[str] = Counter()
        for request in self._expected:
            if have.total() >= limits.cap:
                return
            wanted[request.image] += 1
            if have[request.image] < min(wanted[request.image], limits.per_image):
                have[request.image] += 1
                yield request.image

    def _drop_requested(self) -> None:
        self._expected = [each for each in self._expected if _key(each) not in self._requested]


def _key(request: SandboxRequest) -> tuple[EpisodeId, Role]:
    """Identify one of the two sandboxes of an episode, of whichever attempt."""
    return request.episode, request.role
