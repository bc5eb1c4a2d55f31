"""What the operator sees of a job, as values: the RolloutJob, its worker Job, its worker pods.

Objects come from kopf's watches and from lists in one form, plain JSON. What follows from them is
decided in `reconcile` and `status`; reading them from the cluster is `desk`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

import msgspec
from pydantic import ValidationError

from swe_rollout.cluster.objects import Condition, PodStatus, Terminated
from swe_rollout.errors import SpecError
from swe_rollout.spec.job import API_VERSION, KIND
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.pod_template import template_problems
from swe_rollout.spec.status import PROGRESS_ANNOTATION, RolloutJobStatus, WorkerProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swe_rollout.spec.job import RolloutJobSpec

FINALIZER = "swe-rollout.dev/drain"
DIGEST_ANNOTATION = "swe-rollout.dev/workers-digest"
_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_OVER = frozenset({"Succeeded", "Failed"})


class _Seen(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base: camelCase outside, unknown fields skipped."""


class Owner(_Seen, frozen=True):
    """To whom an object belongs."""

    uid: str = ""


class Metadata(_Seen, frozen=True):
    """Who an object is."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[Owner] = []
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    """When it will have been deleted, the grace period included."""
    deletion_grace_period_seconds: int = 0

    def is_owned_by(self, uid: str) -> bool:
        """Whether it belongs to this very object."""
        return any(owner.uid == uid for owner in self.owner_references)

    @property
    def told_to_end_at(self) -> datetime | None:
        """When its deletion was asked for."""
        if self.deletion_timestamp is None:
            return None
        return self.deletion_timestamp - timedelta(seconds=self.deletion_grace_period_seconds)


class _RawJob(_Seen, frozen=True):
    metadata: Metadata
    spec: dict[str, object] = {}
    status: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A RolloutJob: its spec if it is valid, and what was last said of it."""

    metadata: Metadata
    spec: RolloutJobSpec | None
    problems: str
    """What is wrong with the spec, in the loader's words; empty for a valid one."""
    status: RolloutJobStatus

    @classmethod
    def of(cls, found: Mapping[str, object]) -> Self:
        """The job in an object of the API server."""
        return cls._of(msgspec.convert(found, _RawJob))

    def updated(self, found: Mapping[str, object]) -> Self:
        """The job as it is in `found` now; its status stays ours, who alone write it."""
        raw = msgspec.convert(found, _RawJob)
        if raw.metadata.generation == self.metadata.generation:
            return replace(self, metadata=raw.metadata)
        return replace(self._of(raw), status=self.status)

    @classmethod
    def _of(cls, raw: _RawJob) -> Self:
        status = _status(raw.status)
        try:
            spec = _validated(raw)
        except SpecError as error:
            found = (_sentence(each.field, each.message) for each in error.problems)
            return cls(raw.metadata, None, "; ".join(found), status)
        template = {} if spec.sandbox.pod is None else spec.sandbox.pod.template
        if problems := template_problems(template):
            return cls(raw.metadata, None, "; ".join(map(str, problems)), status)
        return cls(raw.metadata, spec, "", status)


class _WorkerJobSpec(_Seen, frozen=True):
    suspend: bool = False
    completions: int = 1
    active_deadline_seconds: int | None = None


class _WorkerJobStatus(_Seen, frozen=True):
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: list[Condition] = []


class WorkerJob(_Seen, frozen=True):
    """The Indexed Job whose pods are the workers."""

    metadata: Metadata
    spec: _WorkerJobSpec = _WorkerJobSpec()
    status: _WorkerJobStatus = _WorkerJobStatus()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The worker Job in an answer's JSON."""
        return msgspec.json.decode(data, type=cls)

    def condition(self, *kinds: str) -> Condition | None:
        """The first of these conditions that is true."""
        return next(
            (c for c in self.status.conditions if c.type in kinds and c.status == "True"), None
        )

    @property
    def finished(self) -> bool:
        """Whether it starts no pod any more."""
        return self.condition("Complete", "Failed") is not None


class WorkerPod(_Seen, frozen=True):
    """One pod of the worker Job."""

    metadata: Metadata
    status: PodStatus = PodStatus()

    @property
    def index(self) -> int:
        """Which share of the tasks is its own."""
        return int(self.metadata.labels.get(_INDEX_LABEL, "0"))

    @property
    def live(self) -> bool:
        """Whether something may still run in it."""
        return self.status.phase not in _OVER

    @property
    def running(self) -> bool:
        """Whether it works, and was not told to end."""
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None

    @property
    def ended(self) -> Terminated | None:
        """How its container ended; none while it has not."""
        found = self.status.container_statuses
        return found[0].state.terminated if found else None

    @property
    def progress(self) -> WorkerProgress | None:
        """What it last said of its share; none before it has, or when it can't be understood."""
        said = self.metadata.annotations.get(PROGRESS_ANNOTATION)
        if said is None:
            return None
        try:
            return WorkerProgress.model_validate_json(said, extra="ignore")
        except ValidationError:
            return None


@dataclass(frozen=True, slots=True)
class Observed:
    """What there is of a job at one moment."""

    workers: WorkerJob | None = None
    pods: tuple[WorkerPod, ...] = ()
    """Oldest first."""
    shares: Mapping[int, WorkerProgress] = field(default_factory=dict)
    """The last word of each index, also of pods that are gone."""
    sandboxes_left: bool | None = None
    """Whether the job has sandbox pods; none: not looked for."""
    prepared_at: datetime | None = None
    """When its access rights and its policy were last applied by this process."""
    refusal: str = ""
    """Why the API server does not let workers in; empty when it does."""

    @property
    def live_pods(self) -> tuple[WorkerPod, ...]:
        """Workers that have not ended."""
        return tuple(pod for pod in self.pods if pod.live)

    @property
    def newest_pods(self) -> tuple[WorkerPod, ...]:
        """The newest worker of each index, by index."""
        newest = {pod.index: pod for pod in self.pods}
        return tuple(newest[index] for index in sorted(newest))


def _validated(raw: _RawJob) -> RolloutJobSpec:
    """The spec by its model; what the API server let in may still be wrong across fields."""
    metadata = {"name": raw.metadata.name, "namespace": raw.metadata.namespace}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": raw.spec}
    return parse_job(json.dumps(document), source=f"rolloutjob/{raw.metadata.name}").spec


def _status(found: dict[str, object]) -> RolloutJobStatus:
    """What was said before; nothing, where another version said it in another way."""
    try:
        return RolloutJobStatus.model_validate_json(json.dumps(found), extra="ignore")
    except ValidationError:
        return RolloutJobStatus()


def _sentence(name: str, message: str) -> str:
    return f"{name}: {message}" if name else message
