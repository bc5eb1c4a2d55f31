"""Paths and names per checkout and per user; two checkouts never share a name."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
"""This package, which contains the Go modules."""


def cache_folder() -> Path:
    """Return the user's cache for binaries, images and a Go toolchain."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "swe-rollout"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working copy; every machine-wide name of its cluster derives from its path."""

    root: Path

    @classmethod
    def here(cls) -> Checkout:
        """Return the checkout that contains this module."""
        return cls(SOURCES.parents[2])

    @property
    def digest(self) -> str:
        """Eight hex digits that identify the path."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def state(self) -> Path:
        """The cluster's folder: certificates, etcd, containerd's content, logs."""
        return self.root / ".dev-cluster"

    @property
    def logs(self) -> Path:
        """One log file per component, and the API server's audit log."""
        return self.state / "log"

    @property
    def pki(self) -> Path:
        """Keys, certificates and tokens."""
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for use from this machine."""
        return self.state / "kubeconfig"

    @property
    def cgroup(self) -> str:
        """The path of the parent cgroup of all pods of this cluster."""
        return f"/swe-rollout-{self.digest}"

    @property
    def preferred_port(self) -> int:
        """The loopback port to try first, below the kernel's ephemeral range."""
        return 20_000 + int(self.digest, 16) % 10_000
