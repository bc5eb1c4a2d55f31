"""What a kind of local sandbox hands to the provider, which starts and ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.local.images import LocalImage

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sandbox that is ready to start."""

    command: list[str]
    env: Mapping[str, str]
    workdir: str
    """The folder where commands start, as the sandbox sees it."""
    clean_up: Callable[[], Awaitable[None]]
    """To be called once, when its process has ended or was not started."""
    trees: Mapping[str, str] | None = None
    """The folders that are the sandbox's own, by name; None: every mount it may write to."""

    evidence: Callable[[], str] = str
    """Says what shows that the sandbox was ended by what ran in it; empty where nothing does."""


class Kind(Protocol):
    """A kind of local sandbox: in namespaces, or a plain directory."""

    async def prepare(
        self, image: LocalImage, source: Path, workdir: str, *, networked: bool = False
    ) -> Prepared:
        """Prepare a sandbox of the image that lies in the folder `source`."""
        ...


def missing_workdir(workdir: str) -> SandboxError:
    """Return the error of an image without the folder in which commands are to start."""
    return SandboxError(
        f"the image has no folder {workdir}",
        why="no mount of it holds one",
        fix="prepare the dataset again, or correct the instance's workdir",
        retryable=False,
    )
