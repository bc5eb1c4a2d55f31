"""The page of failures: no type is missing, and what it says of trainers is so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollout_dev.codegen.failures_reference import EVIDENCE, HANDLING, failures_page, types
from swe_rollout.errors import Boundary, EpisodeError, SandboxDestroyedError
from swe_rollout.types.episode import Failure


def names(kinds: Sequence[type[EpisodeError]]) -> set[str]:
    return {kind.__name__ for kind in kinds}


def test_every_type_of_failure_is_on_the_page_and_none_that_is_gone() -> None:
    """Issue 16, point 4: each failure typed and owned, in one table."""
    found = types()
    destroyed = [kind for kind in found if issubclass(kind, SandboxDestroyedError)]
    assert set(EVIDENCE) == names(destroyed)
    assert set(HANDLING) == names(found) - names(destroyed)
    page = failures_page()
    assert all(f"| `{name}` |" in page for name in names(found) - {"EpisodeError"})


def test_every_owner_has_a_type() -> None:
    assert {kind.boundary for kind in types()} == set(Boundary)


@pytest.mark.parametrize("kind", types(), ids=lambda kind: kind.__name__)
def test_the_class_alone_says_who_owns_a_failure(kind: type[EpisodeError]) -> None:
    error = kind.__new__(kind)
    EpisodeError.__init__(error, "broken", why="so")
    failure = Failure.of(error)
    assert (failure.type, failure.boundary) == (kind.__name__, kind.boundary)
    assert kind.__doc__
