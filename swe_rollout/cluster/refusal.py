"""What the API server refuses of a RolloutJob, said so that people can mend it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.errors import PrerequisiteError, SweRolloutError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def no_such_object(error: ApiError) -> bool:
    """An object is missing, not the whole kind: for that the answer is no Status."""
    return error.not_found and error.reason == "NotFound"


@contextmanager
def told(namespace: str, name: str) -> Iterator[None]:
    """What the API server refuses in the block, as people can mend it."""
    try:
        yield
    except ApiError as error:
        raise _for_people(error, namespace, name) from error


def _for_people(error: ApiError, namespace: str, name: str) -> SweRolloutError:
    if error.unauthorized or error.forbidden:
        return PrerequisiteError(error.what, why=error.why, fix=error.fix)
    if no_such_object(error) and f'"{name}"' in error.message:
        return UsageError(
            f"there is no RolloutJob {name} in the namespace {namespace}",
            why=error.message,
            fix="`kubectl get rolloutjobs -A` lists those there are; choose by -n and --context",
        )
    if no_such_object(error):
        return UsageError(
            error.what, why=error.message, fix=f"kubectl create namespace {namespace}"
        )
    if error.not_found:
        return PrerequisiteError(
            "the cluster does not know RolloutJobs",
            why="the CRD rolloutjobs.swe-rollout.dev is not installed",
            fix="swe-rollout install",
        )
    if error.invalid or error.conflict:
        return UsageError(error.what, why=error.message, fix="mend the job and send it again")
    return UnreachableError(error.what, why=error.why, fix=error.fix)
