"""Load image archives into the cluster of a checkout, in kind or native."""

from __future__ import annotations

from pathlib import Path

from rollout_dev.dev_cluster import kind, native, record
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.progress import Progress
from rollout_dev.dev_cluster.record import Kind


def load_images(checkout: Checkout, archives: list[Path], progress: Progress) -> None:
    """Import docker-archives into the running cluster."""
    match running_kind(checkout):
        case Kind.KIND:
            kind.load_images(checkout, archives)
        case Kind.NATIVE:
            native.load_images(checkout, archives, progress)


def running_kind(checkout: Checkout) -> Kind:
    """Return the kind of the cluster; raises ScriptError if none runs."""
    found = record.read(checkout)
    if found is not None and found.kind is Kind.KIND:
        return Kind.KIND
    return native.running(checkout).kind
