"""Which pods should wait, the manifest of one, and the patch that assigns it to an episode.

Pure bookkeeping for `warm_pool`, like `pod_spec`. A waiting pod is a sandbox pod without an
episode. It has an agent's role from the start, so that the NetworkPolicy isolates it before
anything runs in it.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from swe_rollout.cluster.objects import Json, Pod
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.spec.sandbox import PodSandbox, WarmPods
from swe_rollout.types.episode import EpisodeId

WARM_LABEL: Final = f"{pod_spec.PREFIX}/warm"
WAITING: Final = "waiting"
"""The label's value until an episode claims the pod, which removes the label."""
_NAME_CHARS: Final = 30


class WarmDemand:
    """The requests that are expected but have not been made yet, soonest first."""

    def __init__(self) -> None:
        self._expected: list[SandboxRequest] = []
        self._requested: set[tuple[EpisodeId, Role]] = set()
        """The expected sandboxes that have been requested since."""

    def __bool__(self) -> bool:
        """Whether any request is expected."""
        return bool(self._expected)

    def expect(self, requests: Sequence[SandboxRequest]) -> None:
        """Replace the expected requests."""
        self._requested &= {_key(request) for request in requests}
        self._expected = list(requests)
        self._drop_requested()

    def fulfil(self, request: SandboxRequest) -> None:
        """Record that a sandbox was requested, so that no pod is kept for it."""
        self._requested.add(_key(request))
        self._drop_requested()

    @property
    def images(self) -> Counter[str]:
        """Return how many of the expected requests need each image."""
        return Counter(request.image for request in self._expected)

    @property
    def longest_grading_s(self) -> float:
        """Return the longest time that an expected request leaves its grader."""
        return max((request.grading_s for request in self._expected), default=0.0)

    @property
    def longest_deadline_s(self) -> float:
        """Return the longest deadline among the expected requests; there must be at least one."""
        return max(pod_spec.lifetime_s(request) for request in self._expected)

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


def warm_manifest(
    image: str,
    *,
    job: str,
    lifetime_s: float,
    grading_s: float = 0.0,
    sandbox: PodSandbox,
    owner: pod_spec.RunIdentity,
) -> Json:
    """Build a pod that waits for an episode of `job`, before the job's template is merged.

    It ends by itself `lifetime_s` after its start, of which `grading_s` are for its grader.
    """
    placeholder = SandboxRequest(
        EpisodeId(job, "", 0),
        Role.AGENT,
        image,
        "/",
        deadline_s=lifetime_s - grading_s,
        grading_s=grading_s,
    )
    manifest = pod_spec.pod_manifest(placeholder, sandbox, owner)
    metadata = manifest["metadata"]
    del metadata["annotations"][pod_spec.EPISODE_ANNOTATION]
    metadata["name"] = _name(image, job) + pod_spec.name_suffix(owner)
    metadata["labels"] = {
        **pod_spec.job_labels(job, owner),
        pod_spec.ROLE_LABEL: Role.AGENT.value,
        **pod_spec.network_labels(placeholder, sandbox),
        WARM_LABEL: WAITING,
    }
    return manifest


def claim_patch(pod: Pod, request: SandboxRequest, *, age_s: float) -> tuple[Json, ...]:
    """Build the patch that assigns the waiting pod to the request, unless it is claimed already.

    `age_s` is how long ago the pod was created: its lifetime is counted from now.
    """
    warm, path = pod_spec.label_path(WARM_LABEL), pod_spec.label_path
    address = path(pod_spec.EPISODE_ANNOTATION, kind="annotations")
    deadline = math.ceil(age_s + pod_spec.lifetime_s(request))
    labels = pod_spec.episode_labels(request)
    return (
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": warm, "value": WAITING},
        {"op": "remove", "path": warm},
        *({"op": "add", "path": path(name), "value": value} for name, value in labels.items()),
        {"op": "add", "path": address, "value": str(request.episode)},
        {"op": "replace", "path": "/spec/activeDeadlineSeconds", "value": deadline},
    )


def is_claimed_by(pod: Pod, request: SandboxRequest, owner: pod_spec.RunIdentity) -> bool:
    """Whether this run has claimed the pod for the request."""
    wanted = {**pod_spec.episode_labels(request), pod_spec.RUN_LABEL: owner.run}
    return WARM_LABEL not in pod.metadata.labels and wanted.items() <= pod.metadata.labels.items()


def _name(image: str, job: str) -> str:
    """Build a readable and unique name."""
    text = re.sub(r"[^a-z0-9]+", "-", f"{job[:20]}-{image.rpartition('/')[2]}".lower())
    digest = hashlib.sha256(image.encode()).hexdigest()[:6]
    return f"{text[:_NAME_CHARS].strip('-') or 'x'}-w-{digest}-{secrets.token_hex(4)}"


def _key(request: SandboxRequest) -> tuple[EpisodeId, Role]:
    """Identify one of the two sandboxes of an episode, in any attempt."""
    return request.episode, request.role
