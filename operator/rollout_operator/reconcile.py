"""Decide what to do about a job from its observed state. Pure: no clock, cluster or memory.

It is level-triggered: every round decides from the observed state alone, so a round that is lost,
repeated or cut off by a restart costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from rollout_operator import actions, resources
from rollout_operator.actions import Action, RecordEvent
from rollout_operator.observed import DIGEST_ANNOTATION, Observed, ObservedJob, WorkerJob
from rollout_operator.resources import Json
from rollout_operator.sightings import Stage
from rollout_operator.status import events_of, is_over, must_stop, next_status
from swe_rollout.spec.job import RolloutJobSpec
from swe_rollout.spec.status import RolloutJobStatus

DRAIN_S = 15.0
"""How long deleted workers keep their sandboxes while they drain."""
STUCK_S = 15.0
"""After this, a stuck worker is replaced; a restart in its pod takes only a moment."""
REAPPLY_INTERVAL_S = 600.0
"""How often access rights and policy are reapplied, in case somebody removed them."""
ACTIVE_INTERVAL_S = 2.0
"""Time between rounds while changes are under way, and the minimum between any two."""
IDLE_INTERVAL_S = 30.0
"""Time between rounds of a steady job."""
COUNTS_INTERVAL_S = 20.0
"""Time between status writes that change only counts."""
OVER_S = 600.0
"""The minimum (or its time to live, if shorter) for which a finished job stays, so that its status
can be seen even if a clock has jumped."""
SPEC_CHANGE_S = 30.0
"""How long counts are written at once after a spec change, as somebody is watching."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one round."""

    actions: tuple[Action, ...]
    status: RolloutJobStatus
    next_round_s: float | None
    """The latest time until the next round; None to wait for a change."""
    events: tuple[RecordEvent, ...] = ()
    """Events to record once the status is written."""


def differs_in_counts_only(before: RolloutJobStatus, after: RolloutJobStatus) -> bool:
    """Whether only counts differ, and both know the same total of episodes."""
    same_total = before.episodes.total == after.episodes.total
    return same_total and (before.state, before.conditions) == (after.state, after.conditions)


def reconcile(job: ObservedJob, observed: Observed, now: datetime, *, image: str) -> Plan:
    """Plan one round; `image` is the workers' image unless the job names one."""
    if job.metadata.deletion_timestamp is not None:
        steps = tuple(_delete(observed))
        gone = not observed.live_pods and observed.sandboxes_left is False
        return Plan(steps, job.status, IDLE_INTERVAL_S if gone else ACTIVE_INTERVAL_S)
    status = next_status(job, observed, now)
    events = tuple(events_of(job.status.conditions, status.conditions, now))
    if is_over(status):
        steps = tuple(_finish(job, observed, status, now))
        return Plan(steps, status, _next_round_s(job, observed, status, now), events)
    if job.spec is None:
        return Plan((), status, None, events)
    # Shards stay as they are, however the parallelism has changed since.
    count = status.workers or job.spec.worker_count
    manifest = partial(resources.worker_job, job.metadata, job.spec, image=image, count=count)
    steps = tuple(_proceed(job.spec, observed, manifest))
    interval_s = ACTIVE_INTERVAL_S if _is_changing(job.spec, observed) else IDLE_INTERVAL_S
    return Plan(steps, status, interval_s, events)


def expects_no_sandboxes(job: ObservedJob) -> bool:
    """Whether the job should have no sandboxes, so that the plan depends on leftover ones."""
    stopped = job.spec is not None and job.spec.suspend
    return stopped or job.metadata.deletion_timestamp is not None or is_over(job.status)


def _proceed(
    spec: RolloutJobSpec, observed: Observed, manifest: Callable[[], Json]
) -> Iterator[Action]:
    if spec.suspend:
        yield from _suspend(spec, observed)
        return
    applied_s = observed.prerequisites_applied_s
    if applied_s is None or applied_s > REAPPLY_INTERVAL_S:
        yield actions.ApplyPrerequisites(spec.workers.service_account_annotations)
    workers = observed.workers
    if workers is None:
        yield actions.CreateWorkers(manifest())
    elif workers.finished or workers.metadata.deletion_timestamp is not None:
        return
    elif workers.metadata.annotations.get(DIGEST_ANNOTATION) != resources.digest(spec):
        # A pod template is immutable: the workers drain, and new ones continue their tasks.
        yield actions.DeleteWorkers(workers.metadata.uid)
    else:
        yield from _replace_stuck(observed)
        suspended = workers.spec.suspend if resources.queued(spec) else False
        yield from _adjust(spec, workers, suspend=suspended)


def _replace_stuck(observed: Observed) -> Iterator[Action]:
    for pod in observed.pods:
        if observed.age_s(pod.metadata.uid, Stage.STUCK) > STUCK_S:
            yield actions.DeleteWorkerPod(pod.metadata.name, pod.metadata.uid)


def _suspend(spec: RolloutJobSpec, observed: Observed) -> Iterator[Action]:
    """Stop workers first, so that they drop their own episodes; then delete leftovers."""
    workers = observed.workers
    if workers is not None and not workers.finished:
        if not resources.queued(spec):
            yield from _adjust(spec, workers, suspend=True)
        elif workers.metadata.deletion_timestamp is None:
            # The queue decides whether a Job runs; the operator only whether it exists.
            yield actions.DeleteWorkers(workers.metadata.uid)
    yield from _delete_sandboxes(observed)


def _adjust(spec: RolloutJobSpec, workers: WorkerJob, *, suspend: bool) -> Iterator[Action]:
    deadline = resources.deadline_seconds(spec)
    if (workers.spec.suspend, workers.spec.active_deadline_seconds) != (suspend, deadline):
        yield actions.AdjustWorkers(workers.metadata.uid, suspend, deadline)


def _finish(
    job: ObservedJob, observed: Observed, status: RolloutJobStatus, now: datetime
) -> Iterator[Action]:
    """Clean up after the end: sandboxes at once, the job itself after its time to live."""
    workers = observed.workers
    # Only a written status stops them: an operator that dies meanwhile must not start others.
    if workers is not None and must_stop(job.status) and not workers.finished:
        yield from _delete_workers(workers)
    yield from _delete_sandboxes(observed)
    left_s = _ttl_left_s(job, observed, status, now)
    if left_s is not None and left_s <= 0:
        yield actions.DeleteJob()


def _delete(observed: Observed) -> Iterator[Action]:
    """Drain while the job still exists. Kubernetes deletes its objects, but only with the job
    itself, which someone else's finalizer may block.
    """
    if observed.workers is not None:
        yield from _delete_workers(observed.workers)
    yield from _delete_sandboxes(observed)


def _delete_workers(workers: WorkerJob) -> Iterator[Action]:
    if workers.metadata.deletion_timestamp is None:
        yield actions.DeleteWorkers(workers.metadata.uid)


def _delete_sandboxes(observed: Observed) -> Iterator[Action]:
    """Delete sandboxes once their workers are gone or have had time to do so themselves."""
    uids = [pod.metadata.uid for pod in observed.live_pods]
    drained = all(observed.age_s(uid, Stage.DELETING) > DRAIN_S for uid in uids)
    if observed.sandboxes_left and drained:
        yield actions.DeleteSandboxes()


def _is_changing(spec: RolloutJobSpec, observed: Observed) -> bool:
    """Whether changes are under way that no watch may report."""
    if spec.suspend:
        return bool(observed.live_pods) or observed.sandboxes_left is not False
    running = sum(pod.running and not pod.is_stuck for pod in observed.newest_pods)
    return observed.workers is None or running < observed.workers.spec.completions


def _next_round_s(
    job: ObservedJob, observed: Observed, status: RolloutJobStatus, now: datetime
) -> float | None:
    """Return when the next clean-up is due, of sandboxes or the job itself."""
    if observed.live_pods or observed.sandboxes_left is not False:
        return ACTIVE_INTERVAL_S
    left_s = _ttl_left_s(job, observed, status, now)
    return None if left_s is None else max(left_s, ACTIVE_INTERVAL_S)


def _ttl_left_s(
    job: ObservedJob, observed: Observed, status: RolloutJobStatus, now: datetime
) -> float | None:
    """Return the seconds until a finished job is deleted; None if never.

    This uses the time in its status, which outlives this process, and how long this process has
    seen it.
    """
    ttl_s = job.spec.ttl_seconds_after_finished if job.spec is not None else None
    if ttl_s is None or status.completion_time is None:
        return None
    passed_s = (now - datetime.fromisoformat(status.completion_time)).total_seconds()
    seen_s = observed.age_s(job.metadata.uid, Stage.OVER)
    return max(ttl_s - max(passed_s, seen_s), min(ttl_s, OVER_S) - seen_s)
