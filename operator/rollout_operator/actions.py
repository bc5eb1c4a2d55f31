"""Changes to the cluster, as values: `reconcile` decides on them, `execute` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from rollout_operator.resources import Json


@dataclass(frozen=True, slots=True)
class ApplyPrerequisites:
    """Apply the workers' access rights and the policy that isolates sandboxes."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the workers' service account."""


@dataclass(frozen=True, slots=True)
class CreateWorkers:
    """Create the worker Job."""

    manifest: Json


@dataclass(frozen=True, slots=True)
class AdjustWorkers:
    """Suspend or resume the worker Job, or change its deadline."""

    uid: str
    suspend: bool
    deadline_seconds: int | None


@dataclass(frozen=True, slots=True)
class DeleteWorkers:
    """Delete the worker Job; its pods drain first, and it disappears after them."""

    uid: str


@dataclass(frozen=True, slots=True)
class DeleteWorkerPod:
    """Delete one worker's pod; the worker Job creates a replacement for its shard."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteSandboxes:
    """Delete every sandbox pod of the job."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the RolloutJob itself, because its time to live is over."""


class EventType(StrEnum):
    """The type of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record an Event on the job, where `kubectl describe` shows it."""

    type: EventType
    reason: str
    message: str
    at: datetime


Action: TypeAlias = (
    ApplyPrerequisites
    | CreateWorkers
    | AdjustWorkers
    | DeleteWorkers
    | DeleteWorkerPod
    | DeleteSandboxes
    | DeleteJob
    | RecordEvent
)
