"""Recipes of images; a recipe's digest names the image, so a changed recipe is a new image."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import ScriptError

IMAGES = Checkout.here().root / "sandbox_images"
_FORMAT = 3
"""Increment this when the builder's output for the same recipe changes."""


@dataclass(frozen=True, slots=True)
class Debian:
    """A small Debian with some packages, made by mmdebstrap."""

    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Busybox:
    """The machine's static busybox and links for all its applets, nothing else."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A base image: the source of its file system, and the defaults of a container."""

    name: str
    """The name on the command line of `scripts/build-images`."""
    image: str
    """The image's name without a tag."""
    source: Debian | Busybox
    workdir: str
    cmd: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the recipe."""
        return hashlib.sha256(f"{_FORMAT} {self!r}".encode()).hexdigest()[:12]

    @property
    def tags(self) -> tuple[str, ...]:
        """The full names: one for exactly this recipe, one for the newest on this machine."""
        return (f"{self.image}:{self.digest}", f"{self.image}:local")


@dataclass(frozen=True, slots=True)
class Python:
    """Packages of this repository with their locked dependencies, for the base's own Python."""

    python: str
    """Python's version, such as `3.11`."""
    requirements: Path
    """The compiled requirements, with hashes."""
    packages: tuple[Path, ...]
    left_out: tuple[str, ...]
    """Globs of installed files to leave out of the image."""
    not_compiled: str
    """A regular expression of paths that get no bytecode ahead of time."""


@dataclass(frozen=True, slots=True)
class Program:
    """A static program from the user's cache."""

    name: str


@dataclass(frozen=True, slots=True)
class Application:
    """An image over a base: a program to run as a user other than root."""

    name: str
    """The name on the command line of `scripts/build-images`."""
    image: str
    """The image's name without a tag."""
    base: Recipe
    source: Python | Program
    workdir: str
    cmd: tuple[str, ...]
    user: str
    environment: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    """Labels of the OCI image specification."""


@dataclass(frozen=True, slots=True)
class Project:
    """What pyproject.toml says about this project."""

    version: str
    license: str


def project() -> Project:
    """Read pyproject.toml."""
    text = (Checkout.here().root / "pyproject.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["project"]
    return Project(version=found["version"], license=found["license"])


def names() -> list[str]:
    """List the images that can be built: the folders with a recipe."""
    return sorted(path.parent.name.replace("_", "-") for path in IMAGES.glob("*/recipe.toml"))


def read(name: str) -> Recipe | Application:
    """Read the recipe of one image."""
    path = IMAGES / name.replace("-", "_") / "recipe.toml"
    if not path.exists():
        raise ScriptError(
            f"There is no image called {name}.",
            fix=f"scripts/build-images {' '.join(names())}",
            exit_code=2,
        )
    value = tomllib.loads(path.read_text())
    source = value["source"]
    image, workdir, cmd = value["image"], value["workdir"], tuple(value["cmd"])
    over: Python | Program
    match source["kind"]:
        case "debian":
            debian = Debian(source["suite"], tuple(source["packages"]))
            return Recipe(name, image, debian, workdir, cmd)
        case "busybox":
            return Recipe(name, image, Busybox(), workdir, cmd)
        case "python":
            root = IMAGES.parent
            over = Python(
                source["python"],
                root / source["requirements"],
                tuple(root / package for package in source["packages"]),
                tuple(source["left_out"]),
                source["not_compiled"],
            )
        case "program":
            over = Program(source["program"])
        case other:
            raise ScriptError(
                f"{path}: there is no source kind {other}",
                fix="debian, busybox, python or program",
            )
    environment = tuple(value.get("environment", {}).items())
    base = base_recipe(source["base"])
    labels = _labels(image, value["description"], base)
    return Application(name, image, base, over, workdir, cmd, value["user"], environment, labels)


def _labels(image: str, description: str, base: Recipe) -> tuple[tuple[str, str], ...]:
    """Return labels without time or commit: the same content must give the same image."""
    ours = project()
    labels = {
        "base.name": base.tags[0],
        "description": description,
        "licenses": ours.license,
        "title": image,
        "version": ours.version,
    }
    return tuple((f"org.opencontainers.image.{key}", text) for key, text in labels.items())


def base_recipe(name: str) -> Recipe:
    """Read the recipe of a base image."""
    found = read(name)
    if isinstance(found, Recipe):
        return found
    raise ScriptError(f"{name} is not a base image.", fix="base or busybox")
