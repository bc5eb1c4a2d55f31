"""The status of a RolloutJob: counters and conditions, but no single episodes.

The operator writes it; the launcher and the command line read it; the CRD's status schema is
generated from these models.
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
    """False if the spec can't be carried out; the message says how to fix it."""
    SUSPENDED = "Suspended"
    STORAGE_READY = "StorageReady"
    MODEL_READY = "ModelReady"
    SANDBOXES_READY = "SandboxesReady"
    """False if sandboxes do not start; the reason is the failure's type, the message a fix."""
    COMPLETE = "Complete"
    FAILED = "Failed"


ROUND_FAILED = "RoundFailed"
"""The reason of a job that is not accepted because its operator failed, and will try again."""


class Condition(Model):
    """One condition, in the form of the Kubernetes API."""

    type: ConditionType
    """The condition's type."""
    status: Literal["True", "False", "Unknown"]
    """`True`, `False` or `Unknown`."""
    reason: str
    """One CamelCase word for programs."""
    message: str = ""
    """What happened, why and how to fix it, for people."""
    last_transition_time: str
    """When `status` last changed."""
    observed_generation: int = 0
    """The generation of the spec that the condition describes."""


class EpisodeCounts(Model):
    """Counts of the job's episodes."""

    total: int = 0
    """Tasks times samples, and the replacements of failed samples."""
    committed: int = 0
    """Episodes in the store."""
    running: int = 0
    """Episodes running now."""
    grading: int = 0
    """Those of them that are being graded."""
    awaiting_cache: int = 0
    """Those of them that wait for room in the engine's KV cache."""
    resolved: int = 0
    """Committed episodes that solved their task."""
    unresolved: int = 0
    """Committed episodes that did not solve their task."""
    tampered: int = 0
    """Unresolved episodes whose tests passed only because the patch tampers with them."""
    unproven: int = 0
    """Resolved episodes whose tests a forgery could pass, too."""
    masked: int = 0
    """Episodes committed with a failure, which earned no reward."""
    replaced: int = 0
    """Those of them in whose place another sample of their task was or will be played."""


class RolloutJobStatus(Model):
    """The status of a job."""

    observed_generation: int = 0
    """The generation of the spec that this status describes."""
    state: State = State.PENDING
    """One word for people; code reads `conditions`."""
    progress: str = ""
    """`committed/total`, for people."""
    mean_reward: str = ""
    """The mean reward over graded episodes, with two decimals, for people."""
    resolved: str = ""
    """`resolved/graded`, for people."""
    policy: str = ""
    """The policy, for people."""
    episodes: EpisodeCounts = EpisodeCounts()
    """Counts of episodes."""
    workers: int = 0
    """Number of workers among which the tasks are split."""
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    """Committed episodes by how they ended."""
    failures: dict[str, int] = Field(default_factory=dict)
    """Masked episodes by the type of their failure."""
    reward_sum: float = 0.0
    """Sum of the rewards of the graded episodes; divide by their number for the mean."""
    conditions: tuple[Condition, ...] = ()
    """All conditions of the job, whether true or false."""
    start_time: str | None = None
    """When its workers first started."""
    completion_time: str | None = None
    """When it completed or failed."""
    selector: str = ""
    """Labels of the job's sandbox pods, for the scale subresource."""


class WorkerProgress(Model):
    """The progress of one worker, stored as the annotation `swe-rollout.dev/progress` on its pod.

    Counts cover the whole shard, including commits of earlier workers.
    """

    episodes: EpisodeCounts = EpisodeCounts()
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    failures: dict[str, int] = Field(default_factory=dict)
    reward_sum: float = 0.0
    unmet: tuple[UnmetCondition, ...] = ()
    """Conditions that are unmet now; empty if all is well."""
    finished: bool = False
    planned: int = 0
    """Samples of the whole job, including other shards, without replacements."""
    masked_now: int = 0
    """Masked episodes that this worker itself committed."""


class UnmetCondition(Model):
    """A condition that a worker found unmet, for the job's status and events."""

    condition: ConditionType
    """The condition that is false."""
    reason: str
    """The failure's type in CamelCase, without `Error`."""
    message: str
    """What happened, why and how to fix it, in one or two sentences."""


WorkerProgress.model_rebuild()

REACHES_API_S = 120.0
"""How long a worker tries to reach the API server: it publishes its first progress then, before it
reads its dataset, or ends."""
PROGRESS_ANNOTATION = "swe-rollout.dev/progress"
JOB_LABEL = "swe-rollout.dev/job"
JOB_UID_LABEL = "swe-rollout.dev/job-uid"
ROLE_LABEL = "swe-rollout.dev/role"
