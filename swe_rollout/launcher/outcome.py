"""What a job on a cluster has come to: counters as a `JobSummary`, a bad end as an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.spec.status import ConditionType
from swe_rollout.store.summary import JobSummary

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.spec.status import Condition


class JobFailedError(SweRolloutError):
    """A job on the cluster has failed; what was committed stays."""


class JobRefusedError(UsageError):
    """The operator can't carry the spec out: nothing was started."""


class JobTimeoutError(SweRolloutError, TimeoutError):
    """A job was not over when the caller's patience was. It goes on."""


def finished(job: JobObject) -> bool:
    """Whether every episode is committed; raises JobFailedError or JobRefusedError.

    A refusal counts only of the spec that is there now: a mended one is judged anew.
    """
    refused = _told(job, ConditionType.ACCEPTED, "False")
    if refused is not None and refused.observed_generation >= job.metadata.generation:
        raise JobRefusedError(
            f"RolloutJob/{job.name} can't be carried out",
            why=refused.message or refused.reason,
            fix="mend the spec and launch it again",
        )
    failed = _told(job, ConditionType.FAILED, "True")
    if failed is not None:
        raise JobFailedError(
            f"RolloutJob/{job.name} has failed: {failed.reason}",
            why=failed.message,
            fix=f"`swe-rollout events {job.namespace}/{job.name}` tells more; what was committed "
            "stays, and the same job under the same name goes on after `swe-rollout cancel`",
        )
    return _told(job, ConditionType.COMPLETE, "True") is not None


def summary_of(job: JobObject) -> JobSummary:
    """The job in figures, as the operator counts them; `swe-rollout status` prints the same."""
    status = job.status
    counts = status.episodes
    graded = counts.resolved + counts.unresolved if job.spec.grading.enabled else 0
    return JobSummary(
        job=job.name,
        episodes=counts.total,
        committed=counts.committed,
        resolved=counts.resolved,
        unresolved=counts.unresolved,
        masked=counts.masked,
        mean_reward=status.reward_sum / graded if graded else None,
        stop_reasons=dict(sorted(status.stop_reasons.items())),
        failures=dict(sorted(status.failures.items())),
    )


def _told(job: JobObject, kind: ConditionType, status: str) -> Condition | None:
    condition = job.condition(kind)
    return condition if condition is not None and condition.status == status else None
