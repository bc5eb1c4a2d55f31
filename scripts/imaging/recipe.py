"""What an image consists of; its digest names the image, so a changed recipe is a new image."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass

from dev_cluster.checkout import SOURCES
from dev_cluster.errors import ScriptError

IMAGES = SOURCES.parent.parent / "sandbox_images"
_FORMAT = 3
"""Raised when the builder makes something else of the same recipe."""


@dataclass(frozen=True, slots=True)
class Debian:
    """A small Debian with some packages, made by mmdebstrap."""

    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Busybox:
    """The machine's static busybox and links for all its applets; nothing else."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image: what its file system is made of, and what a container starts with."""

    name: str
    """As on the command line of `scripts/build-images`."""
    image: str
    """Without a tag."""
    source: Debian | Busybox
    workdir: str
    cmd: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Twelve hex digits of the recipe."""
        return hashlib.sha256(f"{_FORMAT} {self!r}".encode()).hexdigest()[:12]

    @property
    def tags(self) -> tuple[str, ...]:
        """The full names: one for exactly this recipe, one for whatever is newest here."""
        return (f"{self.image}:{self.digest}", f"{self.image}:local")


def names() -> list[str]:
    """The images that can be built: the folders with a recipe."""
    return sorted(path.parent.name for path in IMAGES.glob("*/recipe.toml"))


def read(name: str) -> Recipe:
    """The recipe of one image."""
    path = IMAGES / name / "recipe.toml"
    if not path.exists():
        raise ScriptError(
            f"There is no image called {name}.",
            fix=f"scripts/build-images {' '.join(names())}",
            exit_code=2,
        )
    value = tomllib.loads(path.read_text())
    source = value["source"]
    made_of: Debian | Busybox
    match source["kind"]:
        case "debian":
            made_of = Debian(source["suite"], tuple(source["packages"]))
        case "busybox":
            made_of = Busybox()
        case other:
            raise ScriptError(f"{path}: no such kind of source: {other}", fix="debian or busybox")
    return Recipe(name, value["image"], made_of, value["workdir"], tuple(value["cmd"]))
