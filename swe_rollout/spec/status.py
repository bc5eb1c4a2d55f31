"""The status of a RolloutJob: counters and conditions, never single episodes.

The operator writes it, the launcher and the command line read it; the CRD's status schema is made
from these models.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from swe_rollout.spec.model import Model


class State(StrEnum):
    """One word for people, derived from the conditions. Code reads conditions."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """The conditions of a job."""

    ACCEPTED = "Accepted"
    """False: the spec can't be carried out; the message says how to fix it."""
    SUSPENDED = "Suspended"
    STORAGE_READY = "StorageReady"
    MODEL_READY = "ModelReady"
    SANDBOXES_READY = "SandboxesReady"
    """False: sandboxes do not start; the reason is the failure's type, the message a fix."""
    COMPLETE = "Complete"
    FAILED = "Failed"


class Condition(Model):
    """One condition, in the form of the Kubernetes API."""

    type: ConditionType
    """The condition's type."""
    status: Literal["True", "False", "Unknown"]
    """`True`, `False` or `Unknown`."""
    reason: str
    """One CamelCase word for programs."""
    message: str = ""
    """What, why and how to fix it, for people."""
    last_transition_time: str
    """When `status` last changed."""
    observed_generation: int = 0
    """The generation of the spec that it describes."""


class EpisodeCounts(Model):
    """Counts of the job's episodes."""

    total: int = 0
    """Tasks times samples."""
    committed: int = 0
    """In the store."""
    running: int = 0
    """Running now."""
    resolved: int = 0
    """Committed, and the task is solved."""
    unresolved: int = 0
    """Committed, and the task is not solved."""
    tampered: int = 0
    """Of the unresolved: tests passed only because the patch tampers with them."""
    masked: int = 0
    """Committed with a failure: something broke, nothing was earned."""


class RolloutJobStatus(Model):
    """The status of a job."""

    observed_generation: int = 0
    """The generation of the spec that this status describes."""
    state: State = State.PENDING
    """One word for people; code reads `conditions`."""
    progress: str = ""
    """`committed/total`, for people."""
    mean_reward: str = ""
    """The mean over graded episodes, with two digits, for people."""
    resolved: str = ""
    """`resolved/graded`, for people."""
    policy: str = ""
    """The policy, for people."""
    episodes: EpisodeCounts = EpisodeCounts()
    """Counts of episodes."""
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    """Committed episodes by how they ended."""
    failures: dict[str, int] = Field(default_factory=dict)
    """Masked episodes by the type of their failure."""
    reward_sum: float = 0.0
    """Sum over the graded episodes; the mean divides it by their number."""
    conditions: tuple[Condition, ...] = ()
    """The conditions of the job, true and false."""
    start_time: str | None = None
    """When its workers first started."""
    completion_time: str | None = None
    """When it completed or failed."""
    selector: str = ""
    """Labels of the job's sandbox pods, for the scale subresource."""


class WorkerProgress(Model):
    """The progress of one worker, as the annotation `swe-rollout.dev/progress` on its pod.

    Counts cover the whole shard, including commits of earlier workers.
    """

    episodes: EpisodeCounts = EpisodeCounts()
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    failures: dict[str, int] = Field(default_factory=dict)
    reward_sum: float = 0.0
    unmet: tuple[UnmetCondition, ...] = ()
    """Conditions that are unmet now; empty when all is well."""
    finished: bool = False
    planned: int = 0
    """Episodes of the whole job, those of other shards included."""
    masked_now: int = 0
    """Of the masked ones, those that this worker itself has committed."""


class UnmetCondition(Model):
    """A condition that a worker found unmet, for the job's conditions and events."""

    condition: ConditionType
    """The condition that is false because of it."""
    reason: str
    """CamelCase: the failure's type without `Error`."""
    message: str
    """What, why and how to fix it, in one sentence or two."""


WorkerProgress.model_rebuild()

PROGRESS_ANNOTATION = "swe-rollout.dev/progress"
JOB_LABEL = "swe-rollout.dev/job"
JOB_UID_LABEL = "swe-rollout.dev/job-uid"
ROLE_LABEL = "swe-rollout.dev/role"
