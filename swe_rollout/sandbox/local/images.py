"""Local images: the part of an image that differs from its base, as plain folders to mount.

Dataset builders write them, the local sandbox starts from them, and the image builder copies them
over a base file system for Kubernetes. Layout of one image folder:

    image.json        name, environment, mounts
    <source>/…        one folder for each mount
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swe_rollout.errors import PrerequisiteError, SandboxError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the image and the absolute path it appears at."""

    source: str
    """The folder, relative to the image folder."""
    target: str
    writable: bool
    """Writable mounts are copied for each sandbox; the others are shared, read-only."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on this machine."""

    name: str
    mounts: tuple[Mount, ...]
    env: dict[str, str]
    """Environment of every command, like that of an image's configuration."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sandbox that is ready to start."""

    command: list[str]
    env: Mapping[str, str]
    workdir: str
    """The folder where commands start, as seen in the sandbox."""
    clean_up: Callable[[], Awaitable[None]]
    """Remove what was prepared. Called once, after the process ended or failed to start."""
    trees: Mapping[str, str] | None = None
    """The sandbox's own folders by name; None for every mount that it may write to."""

    evidence: Callable[[], str] = str
    """Return the proof that the sandbox's own processes ended it; empty without one."""


def cache_dir() -> Path:
    """Return the user's cache folder of swe-rollout (`$XDG_CACHE_HOME/swe-rollout`)."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "swe-rollout"


def image_folder(name: str, root: Path | None = None) -> Path:
    """Return the folder of image `name` (such as `swe-rollout/sqlparse:0.5.1-ab12`) in `root`."""
    return (root or cache_dir() / "local-images") / re.sub(r"[^A-Za-z0-9._-]", "_", name)


def save_image(image: LocalImage, folder: Path) -> None:
    """Write `image.json`; call it last, since a folder with that file counts as complete."""
    part = folder / "image.json.part"
    part.write_bytes(msgspec.json.encode(image))
    part.rename(folder / "image.json")


def load_image(name: str, root: Path | None = None) -> tuple[LocalImage, Path]:
    """Load an image and its folder; PrerequisiteError when it is not on this machine."""
    folder = image_folder(name, root)
    try:
        data = (folder / "image.json").read_bytes()
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"the image {name} is not on this machine",
            why=f"{folder} does not exist or is incomplete",
            fix="use `sandbox: {pod: {}}` for images of a registry, or prepare the dataset here",
        ) from error
    return msgspec.json.decode(data, type=LocalImage), folder


def find_workdir(workdir: str, mounts: Mapping[str, Path]) -> Path | None:
    """Return the location of `workdir` among the folders mounted at absolute paths.

    None if it is in none of them; raises SandboxError if its mount has no such folder.
    """
    path = posixpath.normpath(workdir)
    for target, folder in sorted(mounts.items(), key=lambda item: -len(item[0])):
        if path == target or path.startswith(target.rstrip("/") + "/"):
            found = folder / path[len(target) :].lstrip("/")
            if not found.is_dir():
                raise missing_workdir(workdir)
            return found
    return None


def missing_workdir(workdir: str) -> SandboxError:
    """Build the error for an image that lacks the folder in which commands start."""
    return SandboxError(
        f"the image has no folder {workdir}",
        why="no mount of it holds one",
        fix="prepare the dataset again, or correct the instance's workdir",
        retryable=False,
    )
