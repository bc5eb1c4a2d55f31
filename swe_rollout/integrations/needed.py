"""Say which trainer an adapter needs, where it is imported without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from swe_rollout.errors import PrerequisiteError


class TrainerMissingError(PrerequisiteError, ImportError):
    """The trainer that an adapter is for is not installed in this environment."""


@contextmanager
def needed(package: str) -> Iterator[None]:
    """Raise TrainerMissingError where the block imports this package, and it is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise TrainerMissingError(
            f"this adapter needs the package {package}",
            why="it is not installed in this environment",
            fix=f"import it where {package} runs: install swe-rollout into that environment "
            f"(docs/how-to/{package}.md says which version of {package} fits)",
        ) from error
