"""What a waiting pod is, and what makes it an episode's: pure functions beside `pod_spec`.

A waiting pod is a sandbox pod without an episode. Its role is an agent's from the start, so that
the NetworkPolicy cuts it off before anybody is in it. Only `warm_pool` uses this.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from typing import TYPE_CHECKING, Final

from swe_rollout.cluster import manifests
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.trajectory import EpisodeId

if TYPE_CHECKING:
    from swe_rollout.cluster.objects import Pod
    from swe_rollout.spec.job import PodSandbox

WARM_LABEL: Final = f"{pod_spec.PREFIX}/warm"
WAITING: Final = "waiting"
"""The label's value until an episode takes the pod: then it has no such label."""
_NAME_CHARS: Final = 40


def warm_manifest(
    image: str, *, job: str, life_s: float, sandbox: PodSandbox, owner: pod_spec.RunOwner
) -> manifests.PodManifest:
    """A pod that waits for an episode of `job`, without what the job's template adds.

    It ends by itself `life_s` after its start.
    """
    nobody = SandboxRequest(EpisodeId(job, "", 0), Role.AGENT, image, "/", deadline_s=life_s)
    manifest = pod_spec.pod_manifest(nobody, sandbox, owner)
    annotations = dict(manifest.metadata.annotations)
    del annotations[pod_spec.ADDRESS]
    return manifests.PodManifest(
        metadata=manifests.Named(
            name=_name(image, job),
            labels={
                **pod_spec.job_labels(job, owner),
                pod_spec.ROLE_LABEL: Role.AGENT.value,
                WARM_LABEL: WAITING,
            },
            annotations=annotations,
            owner_references=manifest.metadata.owner_references,
        ),
        spec=manifest.spec,
    )


def claim(pod: Pod, request: SandboxRequest, *, age_s: float) -> tuple[manifests.Operation, ...]:
    """The patch by which the waiting pod becomes the request's, unless somebody was first.

    `age_s` is how long ago the pod was created: its life ends `deadline_s` from now.
    """
    labels = pod_spec.episode_labels(request)
    return (
        manifests.Operation(op="test", path="/metadata/uid", value=pod.metadata.uid),
        manifests.Operation(op="test", path=_label(WARM_LABEL), value=WAITING),
        manifests.Operation(op="remove", path=_label(WARM_LABEL)),
        *(manifests.Operation(op="add", path=_label(k), value=v) for k, v in labels.items()),
        manifests.Operation(
            op="add",
            path=f"/metadata/annotations/{_escaped(pod_spec.ADDRESS)}",
            value=str(request.episode),
        ),
        manifests.Operation(
            op="replace",
            path="/spec/activeDeadlineSeconds",
            value=math.ceil(age_s + request.deadline_s),
        ),
    )


def is_claimed_by(pod: Pod, request: SandboxRequest, owner: pod_spec.RunOwner) -> bool:
    """Whether the pod is this run's for the request: its claim got through."""
    wanted = {**pod_spec.episode_labels(request), pod_spec.RUN_LABEL: owner.run}
    return WARM_LABEL not in pod.metadata.labels and wanted.items() <= pod.metadata.labels.items()


def _name(image: str, job: str) -> str:
    """Readable, and never used before."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{job[:20]}-{image.rpartition('/')[2]}".lower())
    digest = hashlib.sha256(image.encode()).hexdigest()[:6]
    return f"{words[:_NAME_CHARS].strip('-') or 'x'}-w-{digest}-{secrets.token_hex(4)}"


def _label(name: str) -> str:
    return f"/metadata/labels/{_escaped(name)}"


def _escaped(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
