"""Build jobs, worker Jobs and worker pods as an API server returns them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from rollout_operator import resources
from rollout_operator.observed import (
    DIGEST_ANNOTATION,
    Observed,
    ObservedJob,
    WorkerJob,
    WorkerPod,
    sights_of,
)
from swe_rollout.spec.status import (
    PROGRESS_ANNOTATION,
    EpisodeCounts,
    UnmetCondition,
    WorkerProgress,
)

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
UID = "uid-of-the-job"
WORKERS_UID = "uid-of-the-workers"
IMAGE = "swe-rollout/worker:test"
SPEC: dict[str, object] = {
    "dataset": {"releasePairs": {}},
    "policy": {"scripted": {}},
    "sandbox": {"pod": {}},
    "store": {"uri": "s3://rollouts"},
}
"""The least that a spec needs."""


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def job(
    spec: dict[str, object] | None = None,
    *,
    deleted_at: datetime | None = None,
    generation: int = 1,
    status: dict[str, object] | None = None,
) -> ObservedJob:
    """Build a valid job of two workers; `spec` overrides its fields."""
    metadata: dict[str, object] = {
        "name": "demo",
        "namespace": "team",
        "uid": UID,
        "generation": generation,
        "resourceVersion": "7",
        "creationTimestamp": stamp(NOW),
    }
    if deleted_at is not None:
        metadata |= {"deletionTimestamp": stamp(deleted_at), "deletionGracePeriodSeconds": 0}
    body = SPEC | {"workers": {"count": 2}} | (spec or {})
    return ObservedJob.of({"metadata": metadata, "spec": body, "status": status or {}})


def worker_job(
    of: ObservedJob,
    *,
    suspended: bool = False,
    conditions: dict[str, str] | None = None,
    deleted: bool = False,
    completed_at: datetime | None = None,
    deadline_seconds: int | None = None,
) -> WorkerJob:
    """Build the worker Job of this job; `conditions` maps types to reasons."""
    assert of.spec is not None
    status: dict[str, object] = {
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": f"message of {kind}"}
            for kind, reason in (conditions or {}).items()
        ]
    }
    if not suspended:
        status["startTime"] = stamp(NOW)
    if completed_at is not None:
        status["completionTime"] = stamp(completed_at)
    metadata: dict[str, object] = {
        "name": "demo-workers",
        "namespace": "team",
        "uid": WORKERS_UID,
        "ownerReferences": [{"uid": UID, "controller": True}],
        "creationTimestamp": stamp(NOW),
        "annotations": {DIGEST_ANNOTATION: resources.digest(of.spec)},
    }
    if deleted:
        metadata["deletionTimestamp"] = stamp(NOW)
    spec: dict[str, object] = {
        "suspend": suspended,
        "completions": of.spec.worker_count,
        "activeDeadlineSeconds": deadline_seconds,
    }
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, WorkerJob)


def pod(
    index: int = 0,
    *,
    progress: WorkerProgress | None = None,
    phase: str = "Running",
    deletion_requested_at: datetime | None = None,
    created_at: datetime = NOW,
    container: dict[str, object] | None = None,
    last: dict[str, object] | None = None,
    conditions: list[dict[str, str]] | None = None,
    index_label: str | None = None,
    owner: str | None = WORKERS_UID,
) -> WorkerPod:
    """Build a worker pod; `container` is the state of its container, `last` the one before."""
    metadata: dict[str, object] = {
        "name": f"demo-workers-{index}-abcde",
        "uid": f"pod-{index}-{stamp(created_at)}",
        "ownerReferences": [] if owner is None else [{"uid": owner, "controller": True}],
        "labels": {
            "batch.kubernetes.io/job-completion-index": index_label
            if index_label is not None
            else str(index)
        },
        "creationTimestamp": stamp(created_at),
    }
    if progress is not None:
        metadata["annotations"] = {PROGRESS_ANNOTATION: progress.model_dump_json(by_alias=True)}
    if deletion_requested_at is not None:
        end = deletion_requested_at + timedelta(seconds=60)
        metadata |= {"deletionTimestamp": stamp(end), "deletionGracePeriodSeconds": 60}
    status: dict[str, object] = {"phase": phase, "conditions": conditions or []}
    if container is not None:
        status["containerStatuses"] = [
            {"name": "worker", "state": container, "lastState": last or {}}
        ]
    return msgspec.convert({"metadata": metadata, "status": status}, WorkerPod)


def progress_of(
    committed: int = 0,
    *,
    total: int = 10,
    running: int = 0,
    awaiting_cache: int = 0,
    resolved: int = 0,
    masked: int = 0,
    finished: bool = False,
    reward_sum: float = 0.0,
    unmet: tuple[UnmetCondition, ...] = (),
    planned: int = 0,
    masked_now: int | None = None,
    replaced: int = 0,
) -> WorkerProgress:
    """Build the progress of a worker, which has masked what is masked unless the test says else."""
    return WorkerProgress(
        episodes=EpisodeCounts(
            total=total,
            committed=committed,
            running=running,
            awaiting_cache=awaiting_cache,
            resolved=resolved,
            unresolved=committed - resolved - masked,
            masked=masked,
            replaced=replaced,
        ),
        stop_reasons={"submitted": committed - masked} if committed > masked else {},
        failures={"PodLostError": masked} if masked else {},
        reward_sum=reward_sum,
        unmet=unmet,
        finished=finished,
        planned=planned,
        masked_now=masked if masked_now is None else masked_now,
    )


def observed(
    *pods: WorkerPod,
    workers: WorkerJob | None = None,
    sandboxes_left: bool | None = None,
    for_s: float = 0.0,
) -> Observed:
    """Observe these objects as a controller that has seen them for so long, and the job over."""
    sights = sights_of(job(), workers, pods, is_over=True)
    progress = {each.index: found for each in pods if (found := each.progress) is not None}
    return Observed(
        workers=workers,
        pods=pods,
        progress=progress,
        sandboxes_left=sandboxes_left,
        seen_for_s=dict.fromkeys(sights, for_s),
        prerequisites_applied_s=0.0,
    )


def with_status(job: ObservedJob, **status: object) -> ObservedJob:
    """Return the job with these fields of its status changed."""
    return replace(job, status=job.status.model_copy(update=status))
