"""The observed state of a job as values: the RolloutJob, its worker Job, its worker pods.

Objects come from kopf's watches and from lists, both as plain JSON. `reconcile` and `status` make
decisions from them; `controller` reads them from the cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

import msgspec
from pydantic import ValidationError

from rollout_operator.sightings import Sight, Stage
from swe_rollout.cluster.objects import KubernetesCondition, PodStatus, Terminated
from swe_rollout.errors import SpecError
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJobSpec
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.status import PROGRESS_ANNOTATION, RolloutJobStatus, WorkerProgress

DIGEST_ANNOTATION = "swe-rollout.dev/workers-digest"
_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_OVER = frozenset({"Succeeded", "Failed"})
_MOST = 10**9
"""The largest plausible count; a worker's progress with a larger one is ignored."""
_MOST_REASONS = 100
_REASON_CHARS = 100


Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time from the API, with its zone: without one, it can't be compared."""


class _ApiObject(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base class: camelCase in JSON, unknown fields ignored."""


class Owner(_ApiObject, frozen=True):
    """An owner reference."""

    uid: str = ""
    controller: bool | None = None


class Metadata(_ApiObject, frozen=True):
    """The metadata of any object."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    """When the object will be gone, including the grace period."""

    @property
    def controller_uid(self) -> str:
        """The uid of the object that manages this one; empty if none does."""
        return next((each.uid for each in self.owner_references if each.controller), "")

    def is_owned_by(self, uid: str) -> bool:
        """Whether the object with this uid is one of the owners."""
        return any(owner.uid == uid for owner in self.owner_references)


class _RawJob(_ApiObject, frozen=True):
    metadata: Metadata
    spec: dict[str, object] = {}
    status: dict[str, object] = {}


_FORBIDDEN = (
    "this cluster's operator forbids user code; install it in the operator's own image of workers "
    "as an entry point, and name that"
)


class UserCode(StrEnum):
    """Whether jobs may supply files, an image or `module:attr` names for workers to run."""

    ALLOW = "allow"
    FORBID = "forbid"


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A RolloutJob: its spec if it is valid, and the status written last."""

    metadata: Metadata
    spec: RolloutJobSpec | None
    problems: str
    """The loader's description of problems in the spec; empty if it is valid."""
    status: RolloutJobStatus
    user_code: UserCode = UserCode.ALLOW

    @classmethod
    def of(cls, found: Mapping[str, object], user_code: UserCode = UserCode.ALLOW) -> Self:
        """Decode an object from the API server. A spec with forbidden user code is invalid."""
        return cls._of(msgspec.convert(found, _RawJob), user_code)

    def updated(self, found: Mapping[str, object]) -> Self:
        """Return the job with all of `found` but its status, which only the operator writes."""
        raw = msgspec.convert(found, _RawJob)
        if raw.metadata.generation == self.metadata.generation:
            return replace(self, metadata=raw.metadata)
        return replace(self._of(raw, self.user_code), status=self.status)

    @classmethod
    def _of(cls, raw: _RawJob, user_code: UserCode) -> Self:
        status = _status(raw.status)
        try:
            spec = _validated(raw)
        except SpecError as error:
            found = [_sentence(each.field, each.message) for each in error.problems]
        except (RecursionError, ValueError, TypeError, ArithmeticError) as error:
            # Where the schema is open, users may write anything.
            found = [f"spec: can't be read: {type(error).__name__}: {error}"]
        else:
            found = []
            if user_code is UserCode.FORBID:
                fields = [field for field, name in spec.extension_names() if ":" in name]
                fields += ["extensions"] if spec.extensions else []
                fields += ["workers.image"] if spec.workers.image is not None else []
                found += [f"spec.{field}: {_FORBIDDEN}" for field in fields]
            if not found:
                return cls(raw.metadata, spec, "", status, user_code)
        return cls(raw.metadata, None, "; ".join(found), status, user_code)


class _WorkerJobSpec(_ApiObject, frozen=True):
    suspend: bool = False
    completions: int = 1
    active_deadline_seconds: int | None = None


class _WorkerJobStatus(_ApiObject, frozen=True):
    start_time: Moment | None = None
    completion_time: Moment | None = None
    conditions: list[KubernetesCondition] = []


class WorkerJob(_ApiObject, frozen=True):
    """The Indexed Job whose pods are the workers."""

    metadata: Metadata
    spec: _WorkerJobSpec = _WorkerJobSpec()
    status: _WorkerJobStatus = _WorkerJobStatus()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the worker Job from JSON."""
        return msgspec.json.decode(data, type=cls)

    def condition(self, *kinds: str) -> KubernetesCondition | None:
        """Return the first of these conditions that is true, if any."""
        return next(
            (c for c in self.status.conditions if c.type in kinds and c.status == "True"), None
        )

    @property
    def finished(self) -> bool:
        """Whether the Job will start no more pods."""
        return self.condition("Complete", "Failed") is not None


class WorkerPod(_ApiObject, frozen=True):
    """One pod of the worker Job."""

    metadata: Metadata
    status: PodStatus = PodStatus()

    @property
    def index(self) -> int:
        """The index of its shard; -1 if the pod's label has none."""
        label = self.metadata.labels.get(_INDEX_LABEL, "")
        return int(label) if re.fullmatch(r"[0-9]{1,5}", label) else -1

    @property
    def live(self) -> bool:
        """Whether its container may still run."""
        return self.status.phase not in _OVER

    @property
    def running(self) -> bool:
        """Whether it runs and is not being deleted."""
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None

    @property
    def is_stuck(self) -> bool:
        """Whether its container has ended although its node reports the pod as running.

        This happens briefly before each restart. It is permanent if the pod's own sandbox is gone
        too, as after a reboot: the kubelet intends to restart the container but never does.
        """
        found = self.status.container_statuses
        return self.running and bool(found) and found[0].state.terminated is not None

    @property
    def ended(self) -> Terminated | None:
        """How its container ended, even if it will restart; None if it runs or never ran."""
        found = self.status.container_statuses
        if not found or found[0].state.running is not None:
            return None
        return found[0].state.terminated or found[0].last_state.terminated

    @property
    def was_out_of_memory(self) -> bool:
        """Whether its container ran out of memory, now or before its last restart."""
        found = self.status.container_statuses
        states = [found[0].state, found[0].last_state] if found else []
        ends = [each.terminated for each in states if each.terminated is not None]
        return any(each.reason == "OOMKilled" for each in ends)

    @property
    def started_at(self) -> datetime | None:
        """When its container started, if it is running."""
        found = self.status.container_statuses
        running = found[0].state.running if found else None
        return None if running is None else _time(running.started_at or "")

    @property
    def progress(self) -> WorkerProgress | None:
        """The progress it last published; None if it is missing or implausible."""
        published = self.metadata.annotations.get(PROGRESS_ANNOTATION)
        if published is None:
            return None
        try:
            found = WorkerProgress.model_validate_json(published, extra="ignore")
        except (ValidationError, RecursionError):
            return None
        return found if _is_plausible(found) else None


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects of a job at one moment."""

    workers: WorkerJob | None = None
    pods: tuple[WorkerPod, ...] = ()
    """Worker pods, oldest first."""
    progress: Mapping[int, WorkerProgress] = field(default_factory=dict)
    """The latest progress of each index, including pods that are gone."""
    sandboxes_left: bool | None = None
    """Whether the job has sandbox pods; None if not checked."""
    seen_for_s: Mapping[Sight, float] = field(default_factory=dict)
    """How long this process has seen each object in its stage."""
    prerequisites_applied_s: float | None = None
    """Seconds since this process last applied access rights and policy; None if never."""
    refusal: str = ""
    """Why the API server refuses the workers; empty if it does not."""

    def age_s(self, uid: str, stage: Stage) -> float:
        """Return how long the object with this uid has been seen in this stage; 0 if not yet."""
        return self.seen_for_s.get((uid, stage), 0.0)

    @property
    def live_pods(self) -> tuple[WorkerPod, ...]:
        """The workers that have not ended."""
        return tuple(pod for pod in self.pods if pod.live)

    @property
    def newest_pods(self) -> tuple[WorkerPod, ...]:
        """The newest worker of each index, by index."""
        newest = {pod.index: pod for pod in self.pods}
        return tuple(newest[index] for index in sorted(newest))


def _validated(raw: _RawJob) -> RolloutJobSpec:
    """Validate the spec: the API server's schema does not check all rules across fields."""
    metadata = {"name": raw.metadata.name, "namespace": raw.metadata.namespace}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": raw.spec}
    return parse_job(json.dumps(document), source=f"rolloutjob/{raw.metadata.name}").spec


def _is_plausible(progress: WorkerProgress) -> bool:
    """Whether sums over all workers fit into a status: users may annotate their own pods."""
    tallies = (progress.stop_reasons, progress.failures)
    counts = [
        *progress.episodes.model_dump().values(),
        *(n for each in tallies for n in each.values()),
    ]
    names = [name for each in tallies for name in each]
    return (
        all(0 <= count <= _MOST for count in counts)
        and abs(progress.reward_sum) <= _MOST
        and len(names) <= _MOST_REASONS
        and all(len(name) <= _REASON_CHARS for name in names)
    )


def _status(found: dict[str, object]) -> RolloutJobStatus:
    """Decode the previous status; empty if somebody else wrote it in another form."""
    try:
        status = RolloutJobStatus.model_validate_json(json.dumps(found), extra="ignore")
    except (ValidationError, RecursionError):
        return RolloutJobStatus()
    times = (status.start_time, status.completion_time)
    readable = all(each is None or _time(each) is not None for each in times)
    return status if readable else RolloutJobStatus()


def _time(text: str) -> datetime | None:
    """Parse a time from the API; None if it is invalid."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _sentence(name: str, message: str) -> str:
    return f"{name}: {message}" if name else message


def sights_of(
    job: ObservedJob, workers: WorkerJob | None, pods: Iterable[WorkerPod], *, is_over: bool
) -> Iterator[Sight]:
    """Yield the sights from which time limits are counted."""
    if is_over:
        yield job.metadata.uid, Stage.OVER
    if workers is not None:
        yield workers.metadata.uid, Stage.THERE
        if workers.finished:
            yield workers.metadata.uid, Stage.OVER
    for pod in pods:
        yield pod.metadata.uid, Stage.THERE
        if pod.started_at is not None:
            yield pod.metadata.uid, Stage.RUNNING
        if pod.is_stuck:
            yield pod.metadata.uid, Stage.STUCK
        if pod.metadata.deletion_timestamp is not None:
            yield pod.metadata.uid, Stage.DELETING
