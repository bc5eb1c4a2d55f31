"""One tree of errors; every error says what happened, why, and how to fix it.

    SweRolloutError
    ├── UsageError          exit 2   the spec, a flag or a dataset row is wrong
    │   ├── SpecError                a job file, with all its problems by line
    │   └── DatasetError             dataset rows, with all their problems by position
    ├── PrerequisiteError   exit 3   something is missing here; `swe-rollout doctor` finds it
    ├── UnreachableError    exit 4   a cluster, an engine or a store does not answer
    └── EpisodeError                 never leaves an episode: it is recorded as a `Failure`
        ├── EngineError  SandboxError  ClusterError  GraderError  StoreError  TaskError
        └── InternalError            a bug of ours

`boundary()` classifies once: what leaves a block is an `EpisodeError` that names its owner, or an
error that stops the job.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


class Boundary(StrEnum):
    """The part of the system that owns a failure."""

    ENGINE = "engine"
    SANDBOX = "sandbox"
    CLUSTER = "cluster"
    GRADER = "grader"
    STORE = "store"
    DATASET = "dataset"
    INTERNAL = "internal"


class SweRolloutError(Exception):
    """The root: `what` happened, `why`, and the `fix` a reader can copy."""

    exit_code: ClassVar[int] = 1
    """What the command line returns for it."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        """One line for logs: what, then why."""
        return f"{self.what}: {self.why}" if self.why else self.what

    @classmethod
    def anchor(cls) -> str:
        """The heading of this error on the troubleshooting page."""
        name = cls.__name__.removesuffix("Error")
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).strip("-")


class UsageError(SweRolloutError):
    """The request itself is wrong: nothing was started."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where (`job.yaml:3`, `rows.jsonl:17`), which field, what."""

    place: str
    field: str
    message: str

    def __str__(self) -> str:
        """`place: field: message`, the form editors make clickable."""
        return ": ".join(part for part in (self.place, self.field, self.message) if part)


class _ProblemsError(UsageError):
    """Several problems of one input, reported at once."""

    def __init__(self, what: str, problems: Sequence[Problem], *, fix: str = "") -> None:
        super().__init__(what, fix=fix)
        self.problems = tuple(problems)


class SpecError(_ProblemsError):
    """A job file or an override is not a valid `RolloutJob`."""


class DatasetError(_ProblemsError):
    """Dataset rows could not be read as instances."""


class PrerequisiteError(SweRolloutError):
    """This machine lacks something the request needs."""

    exit_code = 3


class UnreachableError(SweRolloutError):
    """A cluster, an engine or a store does not answer."""

    exit_code = 4


class EpisodeError(SweRolloutError):
    """Something broke under an episode. Recorded as a failure, never as reward 0."""

    boundary: ClassVar[Boundary] = Boundary.INTERNAL
    scarce: ClassVar[bool] = False
    """Whether there was just no room for it: another try, later, costs nothing."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", retryable: bool = True) -> None:
        super().__init__(what, why=why, fix=fix)
        self.retryable = retryable


class EngineError(EpisodeError):
    """The inference engine failed, or answered something that can't be trained on."""

    boundary = Boundary.ENGINE


class SandboxError(EpisodeError):
    """A sandbox did not start, was lost, or broke its protocol."""

    boundary = Boundary.SANDBOX


class ClusterError(EpisodeError):
    """The Kubernetes API refused or failed a request."""

    boundary = Boundary.CLUSTER


class GraderError(EpisodeError):
    """Grading could not be carried out, which says nothing about the patch."""

    boundary = Boundary.GRADER


class StoreError(EpisodeError):
    """The object store refused or failed a request."""

    boundary = Boundary.STORE


class TaskError(EpisodeError):
    """The instance itself can't be used as its row says."""

    boundary = Boundary.DATASET


class InternalError(EpisodeError):
    """A bug in swe-rollout."""

    boundary = Boundary.INTERNAL


@asynccontextmanager
async def boundary(kind: type[EpisodeError], doing: str) -> AsyncIterator[None]:
    """Give whatever leaves the block an owner: `kind`, unless it is an error of ours already.

    A missing prerequisite and a service that does not answer are the job's own: no episode would
    fare better, so they stop it and burn none. Cancellation is never caught.
    """
    try:
        yield
    except SweRolloutError:
        raise
    except Exception as error:
        raise kind(f"{doing} failed", why=f"{type(error).__name__}: {error}") from error


@contextmanager
def usable(what: str, *, fix: str) -> Iterator[None]:
    """Make a PrerequisiteError of whatever a library raises over files that are not ours.

    `what` can't be used: libraries that read models' files raise anything, a bare Exception too.
    """
    try:
        yield
    except SweRolloutError:
        raise
    except Exception as error:
        said = str(error).strip().partition("\n")[0] or "nothing was said"
        why = said if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {said}"
        raise PrerequisiteError(what, why=why, fix=fix) from error
