"""Route kopf's watch events to the jobs' controllers; nothing else in kopf is used.

Plain event handlers add neither annotations nor finalizers to objects. Workers are watched by their
label, filtered by the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import kopf
import msgspec
import structlog

from rollout_operator.controller import JobController
from rollout_operator.execute import release_policy
from rollout_operator.kube import Kube
from rollout_operator.metrics import Metrics
from rollout_operator.observed import Metadata, ObservedJob, UserCode, WorkerJob, WorkerPod
from rollout_operator.reconcile import ACTIVE_INTERVAL_S
from rollout_operator.resources import WORKER_ROLE
from swe_rollout.errors import SweRolloutError
from swe_rollout.spec.job import API_VERSION
from swe_rollout.spec.status import JOB_LABEL, ROLE_LABEL

_T = TypeVar("_T")
log = structlog.get_logger()

OPERATOR_LABEL = "swe-rollout.dev/operator"
"""Label of a RolloutJob with the name of its operator; without it, the unnamed operator's."""
_WORKERS = f"{ROLE_LABEL}={WORKER_ROLE}"
_WATCH_TIMEOUT_S = 300
_CONNECT_TIMEOUT_S = 10
_RELEASE_ROUNDS = 150
"""Rounds before a NetworkPolicy is left behind, as nothing it denies exists by then."""


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's settings."""

    image: str
    """The workers' image for jobs that name none."""
    namespaces: tuple[str, ...] = ()
    """Namespaces with jobs to manage; all if empty."""
    name: str = ""
    """The name of an additional operator, which manages the jobs that carry its label."""
    user_code: UserCode = UserCode.ALLOW
    health_port: int = 8080
    metrics_port: int = 8081


@dataclass(frozen=True, slots=True)
class JobKey:
    """The namespace and name of a job."""

    namespace: str
    name: str


@dataclass(slots=True)
class Operator:
    """Holds the controllers of all jobs, and handlers that pass kopf's events to them."""

    options: Options
    metrics: Metrics = field(default_factory=Metrics)
    controllers: dict[JobKey, JobController] = field(default_factory=dict)
    _kube: Kube | None = None
    _releases: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _stop_metrics: Callable[[], None] | None = None

    async def start(self, **_: object) -> None:
        """Connect to the cluster and serve metrics."""
        self._kube = await Kube.connect()
        self._stop_metrics = self.metrics.serve(self.options.metrics_port, self._jobs)
        spaces = ",".join(self.options.namespaces) or "all"
        log.info("operator_started", name=self.options.name, namespaces=spaces)

    async def stop(self, **_: object) -> None:
        """Stop all controllers; jobs continue without the operator."""
        for task in self._releases.values():
            task.cancel()
        for controller in self.controllers.values():
            await controller.stop()
        self.controllers.clear()
        if self._stop_metrics is not None:
            self._stop_metrics()
        if self._kube is not None:
            await self._kube.aclose()

    async def on_job(self, event: Mapping[str, object], **_: object) -> None:
        """Handle a RolloutJob that was created, changed or deleted."""
        found = _object(event)
        controller = self._controller_of(found)
        if event.get("type") == "DELETED":
            if controller is not None:
                await self._forget(controller.job.metadata)
            return
        # Use a thread: a spec may be long, and other jobs must not wait for it.
        if controller is not None:
            controller.on_job(await asyncio.to_thread(controller.job.updated, found))
            return
        job = await asyncio.to_thread(ObservedJob.of, found, self.options.user_code)
        key = JobKey(job.metadata.namespace, job.metadata.name)
        if (predecessor := self.controllers.get(key)) is not None:
            await predecessor.stop()  # the new job has the same name
        if self._kube is not None:
            self.controllers[key] = JobController(
                job, self._kube, self.metrics, image=self.options.image
            )
            self.controllers[key].start()

    async def on_workers(self, event: Mapping[str, object], **_: object) -> None:
        """Handle a worker Job that was created, changed or deleted."""
        workers = _decoded(event, WorkerJob)
        if workers is not None and (controller := self._controller_at(workers.metadata)):
            controller.on_workers(workers, deleted=event.get("type") == "DELETED")

    async def on_pod(self, event: Mapping[str, object], **_: object) -> None:
        """Handle a worker pod that was created, changed or deleted."""
        pod = _decoded(event, WorkerPod)
        if pod is not None and (controller := self._controller_at(pod.metadata)):
            controller.on_pod(pod, deleted=event.get("type") == "DELETED")

    async def count_jobs(self, **_: object) -> int:
        """Count the jobs for the health check, which fails only if nothing responds."""
        return len(self.controllers)

    async def _forget(self, job: Metadata) -> None:
        """Stop the rounds of a deleted job; release the policy with the namespace's last one."""
        await self.controllers.pop(JobKey(job.namespace, job.name)).stop()
        if job.namespace not in self._releases:
            release = asyncio.create_task(self._release(job.namespace))
            self._releases[job.namespace] = release
            release.add_done_callback(lambda _: self._releases.pop(job.namespace, None))

    async def _release(self, namespace: str) -> None:
        """Delete the namespace's policy once its last sandbox is gone."""
        for _ in range(_RELEASE_ROUNDS):
            await asyncio.sleep(ACTIVE_INTERVAL_S)
            if self._kube is None or any(each.namespace == namespace for each in self.controllers):
                return
            try:
                if await release_policy(namespace, self._kube):
                    return
            except SweRolloutError as error:
                log.warning("policy_not_released", namespace=namespace, why=str(error))

    def _jobs(self) -> tuple[ObservedJob, ...]:
        """Return all jobs for the metrics, which are scraped in another thread."""
        return tuple(controller.job for controller in tuple(self.controllers.values()))

    def _controller_at(self, found: Metadata) -> JobController | None:
        return self.controllers.get(JobKey(found.namespace, found.labels.get(JOB_LABEL, "")))

    def _controller_of(self, found: Mapping[str, object]) -> JobController | None:
        """Find the controller of exactly this job, not of another with the same name."""
        metadata = found["metadata"]
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        found_by_uid = (each for each in self.controllers.values() if each.job.metadata.uid == uid)
        return next(found_by_uid, None)


def registry_of(operator: Operator) -> kopf.OperatorRegistry:
    """Register the handlers with kopf."""
    registry = kopf.OperatorRegistry()
    kopf.on.startup(registry=registry)(operator.start)
    kopf.on.cleanup(registry=registry)(operator.stop)
    kopf.on.login(registry=registry)(kopf.login_via_client)
    kopf.on.probe(registry=registry, id="jobs", errors=kopf.ErrorsMode.PERMANENT)(
        operator.count_jobs
    )
    kopf.on.event(API_VERSION, "rolloutjobs", registry=registry)(operator.on_job)
    kopf.on.event("batch/v1", "jobs", registry=registry)(operator.on_workers)
    kopf.on.event("v1", "pods", registry=registry)(operator.on_pod)
    return registry


def settings(options: Options) -> kopf.OperatorSettings:
    """Configure kopf: no peering, no events of its own, bounded watches, only our objects."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    chosen.posting.enabled = False
    chosen.watching.server_timeout = _WATCH_TIMEOUT_S
    chosen.watching.connect_timeout = _CONNECT_TIMEOUT_S
    own_jobs = f"{OPERATOR_LABEL}={options.name}" if options.name else f"!{OPERATOR_LABEL}"
    chosen.watching.label_selectors["rolloutjobs"] = own_jobs
    for resource in ("jobs", "pods"):
        chosen.watching.label_selectors[resource] = _WORKERS
    return chosen


def run(options: Options) -> None:
    """Run until a signal, then close everything."""
    kopf.run(
        registry=registry_of(Operator(options)),
        settings=settings(options),
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        standalone=True,
        liveness_endpoint=f"http://0.0.0.0:{options.health_port}/healthz",
    )


def _decoded(event: Mapping[str, object], kind: type[_T]) -> _T | None:
    """Decode a watched object; return None if its form is not that of our workers."""
    try:
        return msgspec.convert(_object(event), kind)
    except msgspec.ValidationError as error:
        log.warning("object_ignored", kind=kind.__name__, why=str(error))
        return None


def _object(event: Mapping[str, object]) -> dict[str, object]:
    found = event["object"]
    return found if isinstance(found, dict) else {}
