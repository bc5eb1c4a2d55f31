"""Merge a job's own pod template into the hardened pod of a sandbox.

A template has few fields (`swe_rollout.spec.pod_template`): labels, annotations and tolerations are
added to the defaults, amounts of resources replace them one by one, and nothing is removed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from swe_rollout.cluster.manifests import PodManifest, TemplatedPod
from swe_rollout.spec.pod_template import PodTemplate

_MERGED: Final = ("containers", "tolerations")
"""Fields whose defaults stay beside what the template adds."""


def with_template(
    manifest: PodManifest, template: PodTemplate | None
) -> PodManifest | TemplatedPod:
    """Merge the template into the pod."""
    if template is None:
        return manifest
    own: dict[str, object] = msgspec.to_builtins(manifest.spec)
    wanted: dict[str, object] = template.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={*_MERGED}
    )
    spec = {**own, **wanted, "containers": _containers(manifest, template)}
    spec["tolerations"] = [
        *(msgspec.to_builtins(each) for each in manifest.spec.tolerations),
        *(
            each.model_dump(mode="json", by_alias=True, exclude_none=True)
            for each in template.spec.tolerations
        ),
    ]
    metadata = msgspec.structs.replace(
        manifest.metadata,
        # Our own labels and annotations last: the template can't override them.
        labels={**template.metadata.labels, **manifest.metadata.labels},
        annotations={**template.metadata.annotations, **manifest.metadata.annotations},
    )
    return TemplatedPod(metadata=metadata, spec=spec)


def _containers(manifest: PodManifest, template: PodTemplate) -> list[object]:
    (only,) = manifest.spec.containers
    for each in template.spec.containers:
        own, wanted = only.resources, each.resources
        resources = msgspec.structs.replace(
            own,
            requests={**own.requests, **wanted.requests},
            limits={**own.limits, **wanted.limits},
        )
        only = msgspec.structs.replace(only, resources=resources)
    return [msgspec.to_builtins(only)]
