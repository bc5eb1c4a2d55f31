"""The page of failures: no type is missing, and what it says of trainers is so."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import swe_rollout
from checkout import ROOT
from swe_rollout.errors import Boundary, EpisodeError, SandboxDestroyedError
from swe_rollout.types.episode import Failure, StopReason

ROOMS = ("agent", "cluster", "engine", "grading", "journal", "sandbox", "store", "worker")
PAGE = (ROOT / "docs" / "reference" / "failures.md").read_text("utf-8")
OWNERS = {
    Boundary.ENGINE: "platform: engine",
    Boundary.SANDBOX: "platform: sandbox",
    Boundary.CLUSTER: "platform: cluster",
    Boundary.GRADER: "platform: grader",
    Boundary.STORE: "platform: store",
    Boundary.DATASET: "task",
    Boundary.EXTENSION: "user code",
    Boundary.INTERNAL: "swe-rollout",
}


def types(kind: type[EpisodeError] = EpisodeError) -> Iterator[type[EpisodeError]]:
    """Yield every type of failure of the package."""
    if kind is EpisodeError:
        for room in ROOMS:
            package = importlib.import_module(f"swe_rollout.{room}")
            for found in pkgutil.walk_packages(package.__path__, f"swe_rollout.{room}."):
                importlib.import_module(found.name)
    for each in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
        if each.__module__.startswith(f"{swe_rollout.__name__}."):
            yield each
            yield from types(each)


TYPES = tuple(types())


def test_every_type_of_failure_is_on_the_page_and_none_that_is_gone() -> None:
    rows = re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(kind.__name__ for kind in TYPES)
    for kind in TYPES:
        if not issubclass(kind, SandboxDestroyedError):
            meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
            assert f"\n| `{kind.__name__}` | {meaning} | {OWNERS[kind.boundary]} | " in PAGE
    assert f"`{StopReason.SANDBOX_DESTROYED.value}`" in PAGE


def test_every_owner_has_a_type() -> None:
    assert {kind.boundary for kind in TYPES} | {EpisodeError.boundary} == set(Boundary)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_the_class_alone_says_who_owns_a_failure(kind: type[EpisodeError]) -> None:
    error = kind.__new__(kind)
    EpisodeError.__init__(error, "broken", why="so")
    failure = Failure.of(error)
    assert (failure.type, failure.boundary) == (kind.__name__, kind.boundary)
    assert kind.__doc__
