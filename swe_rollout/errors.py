"""The tree of errors. Every error says what happened, why, and how to fix it.

    SweRolloutError
    ├── UsageError          exit 2   the spec, a flag or a dataset row is invalid
    │   ├── SpecError                a job file, with all its problems by line
    │   └── DatasetError             dataset rows, with all their problems by position
    ├── PrerequisiteError   exit 3   this machine lacks something; `swe-rollout doctor` finds it
    ├── UnreachableError    exit 4   a cluster, an engine or a store does not respond
    └── EpisodeError                 never leaves an episode: recorded as a `Failure`
        ├── EngineError  SandboxError  ClusterError  GraderError  StoreError  TaskError
        ├── ExtensionFailedError     code of the user's raised, or took a step it may not take
        │                └── SandboxDestroyedError   its own commands ended it: data, no failure
        └── InternalError            a bug in swe-rollout

`boundary()` classifies errors once: a block raises either an `EpisodeError` that names its owner,
or an error that stops the job.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from swe_rollout.text.redaction import redact
from swe_rollout.text.user_code import UserCode, defined_at, said, user_code, was_cancelled

_PROBLEMS_SHOWN = 20
_Result = TypeVar("_Result")
_Error = TypeVar("_Error", bound=BaseException)


class Boundary(StrEnum):
    """The part of the system that owns a failure."""

    ENGINE = "engine"
    SANDBOX = "sandbox"
    CLUSTER = "cluster"
    GRADER = "grader"
    STORE = "store"
    DATASET = "dataset"
    EXTENSION = "extension"
    """User code of any kind, and tool servers."""
    INTERNAL = "internal"


class SweRolloutError(Exception):
    """The root of all errors: `what` happened, `why`, and a `fix` to copy. Shows no secrets."""

    exit_code: ClassVar[int] = 1
    """Exit code of the command line for this error."""
    trace: str = ""
    """The lines of the user's code that raised, as Python prints them; empty if other code did."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what = redact(what)
        self.why = redact(why)
        self.fix = redact(fix)
        super().__init__(self.what)
        if self.fix:
            self.add_note(f"fix: {self.fix}")  # Python prints notes below the message

    def __str__(self) -> str:
        """Format as one line for logs: what, then why."""
        return f"{self.what}: {self.why}" if self.why else self.what

    @classmethod
    def anchor(cls) -> str:
        """Return the anchor of this error on the troubleshooting page."""
        name = cls.__name__.removesuffix("Error")
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).strip("-")


class UsageError(SweRolloutError):
    """The request is invalid; nothing was started."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of an input: its place (`job.yaml:3`, `rows.jsonl:17`), field, and message."""

    place: str
    field: str
    message: str

    def __str__(self) -> str:
        """Format as `place: field: message`, which editors make clickable."""
        return ": ".join(part for part in (self.place, self.field, self.message) if part)


class _ProblemsError(UsageError):
    """All problems of one input, reported together."""

    def __init__(self, what: str, problems: Sequence[Problem], *, fix: str = "") -> None:
        super().__init__(what, fix=fix)
        vars(self).pop("__notes__", None)  # `str` already includes the fix
        self.problems = tuple(
            Problem(redact(each.place), redact(each.field), redact(each.message))
            for each in problems
        )

    def __str__(self) -> str:
        """Format `what`, then the first problems, one per line, then the fix."""
        more = len(self.problems) - _PROBLEMS_SHOWN
        lines = [super().__str__(), *map(str, self.problems[:_PROBLEMS_SHOWN])]
        lines += [f"… and {more} more"] if more > 0 else []
        lines += [f"fix: {self.fix}"] if self.fix else []
        return "\n  ".join(lines)


class SpecError(_ProblemsError):
    """A job file or an override is not a valid `RolloutJob`."""


class DatasetError(_ProblemsError):
    """Dataset rows could not be read as instances."""


class PrerequisiteError(SweRolloutError):
    """This machine lacks something the request needs."""

    exit_code = 3


class UnreachableError(SweRolloutError):
    """A cluster, an engine or a store does not respond."""

    exit_code = 4


class EpisodeError(SweRolloutError):
    """Infrastructure failed under an episode. Recorded as a failure, never as reward 0."""

    boundary: ClassVar[Boundary] = Boundary.INTERNAL
    scarce: ClassVar[bool] = False
    """Whether the only cause was lack of capacity, so that retrying later costs nothing."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", retryable: bool = True) -> None:
        super().__init__(what, why=why, fix=fix)
        self.retryable = retryable

    def show(self, code: UserCode | None) -> None:
        """Name the lines of the user's code that this is about."""
        if code is not None:
            self.trace = redact(code.trace)
            self.why = redact(f"{self.why} ({code.where})" if self.why else code.where)


class EngineError(EpisodeError):
    """The inference engine failed, or its response can't be trained on."""

    boundary = Boundary.ENGINE


class SandboxError(EpisodeError):
    """A sandbox did not start, was lost, or violated its protocol."""

    boundary = Boundary.SANDBOX


class SandboxDestroyedError(SandboxError):
    """Processes inside a sandbox destroyed it; `why` holds the evidence.

    Raise it only for what the sandbox's own processes alone can cause, such as exceeding its memory
    limit: an agent's episode then ends and is graded, and a graded patch counts as unresolved.
    Without evidence, assume that the platform is at fault and raise a SandboxError.
    """

    def __init__(self, what: str, *, why: str, fix: str = "", retryable: bool = False) -> None:
        super().__init__(what, why=why, fix=fix, retryable=retryable)


class ClusterError(EpisodeError):
    """The Kubernetes API refused or failed a request."""

    boundary = Boundary.CLUSTER


class GraderError(EpisodeError):
    """Grading failed, which says nothing about the patch."""

    boundary = Boundary.GRADER


class StoreError(EpisodeError):
    """The object store refused or failed a request."""

    boundary = Boundary.STORE


class TaskError(EpisodeError):
    """The instance is unusable as its dataset row describes it."""

    boundary = Boundary.DATASET


class ExtensionFailedError(EpisodeError):
    """Code of the user's raised, or took a step that it may not take: a bug in that code."""

    boundary = Boundary.EXTENSION

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "",
        retryable: bool = False,
        by: object = None,
    ) -> None:
        """`by` is the extension, whose place in the user's files is then shown."""
        super().__init__(what, why=why, fix=fix, retryable=retryable)
        self.show(None if by is None else defined_at(by))


class MisuseError(ExtensionFailedError):
    """An agent program asked for a step that can't be taken."""


class InternalError(EpisodeError):
    """A bug in swe-rollout."""

    boundary = Boundary.INTERNAL


def is_down(error: BaseException) -> bool:
    """Whether a service does not respond, or an API server has too many requests to serve this."""
    is_busy = isinstance(error, ClusterError) and error.retryable
    return is_busy or isinstance(error, UnreachableError)


@asynccontextmanager
async def boundary(kind: type[EpisodeError], doing: str, *, fix: str = "") -> AsyncIterator[None]:
    """Turn any error that leaves the block into a `kind`, unless it is a SweRolloutError already.

    An error of the user's own code becomes an ExtensionFailedError, with the lines that raised it.
    A missing prerequisite or an unreachable service would fail every episode alike, so it stops the
    job instead of failing episodes. Cancellation is never caught; a SystemExit is.
    """
    with caught(kind, doing, fix=fix):
        yield


@contextmanager
def caught(
    kind: type[EpisodeError], doing: str, *, fix: str = "", by: object = None
) -> Iterator[None]:
    """Do what `boundary` does, for plain functions, too. `by` is the extension that is called."""
    try:
        yield
    except SweRolloutError:
        raise
    except asyncio.CancelledError as error:
        if was_cancelled() or user_code(error) is None:
            raise
        raise failure_of(error, kind, doing, fix=fix, by=by) from error
    except (Exception, SystemExit) as error:
        if by is None and (lack := lacking_program(error)) is not None:
            raise lack from error
        raise failure_of(error, kind, doing, fix=fix, by=by) from error


def lacking_program(error: BaseException) -> PrerequisiteError | None:
    """Return the error for a program of this machine that can't be started, unless user code did.

    Starting it again would fail alike: it is no failure of an episode.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_start = bool(frames) and frames[-1].f_globals.get("__name__") == "subprocess"
    is_lack = isinstance(error, FileNotFoundError | PermissionError)
    if not (is_start and is_lack) or user_code(error) is not None:
        return None
    return PrerequisiteError(
        "a program that is needed can't be started on this machine",
        why=str(error),
        fix="install it, and look at PATH; `swe-rollout doctor` checks this machine",
    )


def failure_of(
    error: BaseException,
    kind: type[EpisodeError],
    doing: str,
    *,
    fix: str = "",
    by: object = None,
) -> EpisodeError:
    """Return the failure that an error is: a `kind`, or an ExtensionFailedError.

    `by` is the extension that was called; it is not called again.
    """
    place = None if by is None else defined_at(by)
    found = user_code(error, is_blamed=place is not None or kind is ExtensionFailedError)
    if place is not None or (found is not None and (found.is_bug or kind is InternalError)):
        kind, fix = ExtensionFailedError, fix or "correct this line"
    may_pass = kind is not ExtensionFailedError or (found is not None and not found.is_bug)
    failure = kind(f"{doing} failed", why=said(error), fix=fix, retryable=may_pass and by is None)
    failure.show(found or place)
    return failure


async def gather_all(work: Iterable[Coroutine[None, None, _Result]]) -> tuple[_Result, ...]:
    """Run coroutines concurrently and return their results in order.

    The first error cancels the others and is raised unwrapped.
    """
    with unwrapped():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    return tuple(task.result() for task in tasks)


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they end; ignore whatever they raise."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the first error of a task group that failed in the block, alone.

    What else broke while the other tasks were being cancelled doesn't hide it: it is logged.
    """
    try:
        yield
    except BaseExceptionGroup as errors:
        first = first_error(errors)
        _, others = errors.split(lambda error: error is first or isinstance(error, SweRolloutError))
        if others is not None:
            # The verbs that should be fast import this module, and log nothing.
            import structlog  # noqa: PLC0415

            structlog.get_logger().error("failed_while_stopping", exc_info=others)
        raise first from first.__cause__


def first_error(group: BaseExceptionGroup[_Error]) -> _Error:
    """Return the first leaf of a possibly nested exception group."""
    first = group.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first
