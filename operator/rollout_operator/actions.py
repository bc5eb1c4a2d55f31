"""What can be done to a cluster, as values: `reconcile` decides on them, `execute` does them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    from rollout_operator.resources import Json


@dataclass(frozen=True, slots=True)
class Hold:
    """Mark the job, so that its deletion waits for ours."""


@dataclass(frozen=True, slots=True)
class Release:
    """Take the mark off: nothing of the job runs any more."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Give the workers their rights, and cut the sandboxes off."""


@dataclass(frozen=True, slots=True)
class CreateWorkers:
    """Make the worker Job."""

    manifest: Json


@dataclass(frozen=True, slots=True)
class AdjustWorkers:
    """Suspend or resume the worker Job, or move its deadline."""

    suspend: bool
    deadline_seconds: int | None


@dataclass(frozen=True, slots=True)
class DeleteWorkers:
    """End the worker Job; its pods are told to drain, and it goes after them."""

    uid: str


@dataclass(frozen=True, slots=True)
class DeleteSandboxes:
    """Remove every sandbox pod of the job."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the RolloutJob itself: its time after the end is over."""


class EventType(StrEnum):
    """How an event is shown."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Announce:
    """Say something about the job where `kubectl describe` shows it."""

    type: EventType
    reason: str
    message: str
    at: datetime


Action: TypeAlias = (
    Hold
    | Release
    | Prepare
    | CreateWorkers
    | AdjustWorkers
    | DeleteWorkers
    | DeleteSandboxes
    | DeleteJob
    | Announce
)
