"""Bounds and dropped defaults that make a RolloutJob's schema differ on a cluster. Used by `crd`.

All other bounds are the models' own. The API server needs them to estimate the cost of
`cluster_rules`: without them it refuses the definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from swe_rollout.spec.quantity import MAX_AMOUNTS

OPEN: Final = (
    "",
    ".metadata",
    ".spec",
    ".spec.affinity",
    ".spec.containers[]",
    ".spec.containers[].resources",
)
"""Objects of the template whose unknown fields are kept, so that an admission policy refuses them:
without that, the API server would drop them from a request that does not ask for validation."""
RESOURCES: Final = ("spec.sandbox.pod.resources", "spec.workers.resources")
QUANTITIES: Final = {
    "cpu": MAX_AMOUNTS["cpu"],
    "cpuLimit": MAX_AMOUNTS["cpu"],
    "memory": MAX_AMOUNTS["memory"],
    "ephemeralStorage": MAX_AMOUNTS["ephemeral-storage"],
}
"""The most of each."""
TEMPLATE: Final = "spec.sandbox.pod.template"
AMOUNTS: Final = tuple(
    f"{TEMPLATE}.spec.containers[].resources.{kind}" for kind in ("requests", "limits")
)
"""Mappings from a resource's name to a quantity."""
TOLERATIONS: Final = ("spec.workers.tolerations", f"{TEMPLATE}.spec.tolerations")
LABELS: Final = ("spec.workers.labels", f"{TEMPLATE}.metadata.labels")
LABEL_VALUES: Final = (
    *(f"{path}{{}}" for path in LABELS),
    "spec.workers.nodeSelector{}",
    f"{TEMPLATE}.spec.nodeSelector{{}}",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """A schema keyword at `path`."""

    path: str
    keyword: str
    value: int | str


DROPPED_DEFAULTS: Final = ("spec.sandbox", "spec.store", "spec.store.uri")
"""Defaults that only make sense on one machine."""

DROPPED_BOUNDS: Final = (
    Bound("spec.parallelism", "minimum", 1),
    *(Bound(path, "pattern", "") for path in LABEL_VALUES),
)
"""Bounds that a rule checks instead, with a message that says how to fix it."""

BOUNDS: Final = (
    Bound("metadata.name", "maxLength", 253),
    Bound("spec.parallelism", "format", "int32"),
    Bound("spec.extensions[].sha256", "maxLength", 64),
)
