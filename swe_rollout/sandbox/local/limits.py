"""The limits of a local sandbox: memory, processes, and what it may write.

Control groups hold the first two for the sandbox as a whole. Where this process may make none, the
kernel's limits of single processes are set: then the memory of many processes is not bounded, nor
the number of root's processes.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Collection
from dataclasses import dataclass

from swe_rollout.spec.sandbox import LocalSandbox, size_bytes

_BYTES_PER_FILE = 8 << 10
"""One file's share of the disk; a file also costs the kernel about 1 KiB of memory."""
_COUNTED_IN_NAMESPACE = (5, 14)
"""Linux counts processes for each user namespace from this version on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use."""

    memory_bytes: int
    """Of all processes, and of the files that they write."""
    processes: int
    """And threads."""
    disk_bytes: int
    """Of the files that they write, which lie in memory."""

    @classmethod
    def of(cls, spec: LocalSandbox) -> Limits:
        """Return the limits of a job's local sandboxes."""
        return cls(size_bytes(spec.memory), spec.processes, size_bytes(spec.disk))

    @property
    def file_options(self) -> str:
        """The mount options of the file system that holds all that a sandbox writes."""
        return f"mode=755,size={self.disk_bytes},nr_inodes={self.disk_bytes // _BYTES_PER_FILE}"


def process_limits(limits: Limits, controllers: Collection[str]) -> list[str]:
    """Return the command that limits single processes where no control group does."""
    words = []
    if "memory" not in controllers:
        words.append(f"--data={limits.memory_bytes}")
    if "pids" not in controllers and os.geteuid() != 0 and _counts_in_namespace():
        words.append(f"--nproc={limits.processes}")
    return ["prlimit", *words, "--"] if words and shutil.which("prlimit") else []


def _counts_in_namespace() -> bool:
    numbers = platform.release().split(".")[:2]
    return all(number.isdigit() for number in numbers) and (
        tuple(map(int, numbers)) >= _COUNTED_IN_NAMESPACE
    )
