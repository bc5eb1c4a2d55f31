"""Evaluate a job on a cluster: its counts as a `JobSummary`, a failure as an error."""

from __future__ import annotations

from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.spec.status import ROUND_FAILED, Condition, ConditionType
from swe_rollout.store.summary import JobSummary


class JobFailedError(SweRolloutError):
    """A job on the cluster has failed; committed episodes stay."""


class JobRefusedError(UsageError):
    """The operator can't carry out the spec: nothing was started."""


class JobTimeoutError(SweRolloutError, TimeoutError):
    """The caller's timeout passed before the job ended. The job continues."""


def is_complete(job: JobObject) -> bool:
    """Whether every episode is committed. Raises JobFailedError or JobRefusedError.

    A refusal counts only for the current generation of the spec: a corrected spec is not refused
    until the operator has checked it. A failed round of the operator is none.
    """
    refused = _condition(job, ConditionType.ACCEPTED, "False")
    if (
        refused is not None
        and refused.reason != ROUND_FAILED
        and refused.observed_generation >= job.metadata.generation
    ):
        raise JobRefusedError(
            f"RolloutJob/{job.name} can't be carried out",
            why=refused.message or refused.reason,
            fix="correct the spec and launch it again",
        )
    failed = _condition(job, ConditionType.FAILED, "True")
    if failed is not None:
        raise JobFailedError(
            f"RolloutJob/{job.name} has failed: {failed.reason}",
            why=failed.message,
            fix=f"see `swe-rollout events {job.namespace}/{job.name}`; committed episodes stay: "
            "to continue, run `swe-rollout cancel` and launch the job again under the same name",
        )
    return _condition(job, ConditionType.COMPLETE, "True") is not None


def summary_of(job: JobObject) -> JobSummary:
    """Return the job's counts as the operator reports them and `swe-rollout status` prints them."""
    status = job.status
    counts = status.episodes
    graded = counts.resolved + counts.unresolved if job.spec.grading.enabled else 0
    return JobSummary(
        job=job.name,
        episodes=counts.total,
        committed=counts.committed,
        resolved=counts.resolved,
        unresolved=counts.unresolved,
        tampered=counts.tampered,
        unproven=counts.unproven,
        masked=counts.masked,
        replaced=counts.replaced,
        mean_reward=status.reward_sum / graded if graded else None,
        stop_reasons=dict(sorted(status.stop_reasons.items())),
        failures=dict(sorted(status.failures.items())),
    )


def _condition(job: JobObject, kind: ConditionType, status: str) -> Condition | None:
    """Return the job's condition of this type if it has this status."""
    condition = job.condition(kind)
    return condition if condition is not None and condition.status == status else None
