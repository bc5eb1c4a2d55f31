"""What to do about a job, given all that is seen of it. Pure: no clock, no cluster, no memory.

Level-triggered: every round decides anew from what is there, so a round that was lost, doubled or
cut off by a restart changes nothing but the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rollout_operator import actions, resources
from rollout_operator.observed import DIGEST_ANNOTATION, FINALIZER
from rollout_operator.status import is_over, news, next_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rollout_operator.actions import Action, Announce
    from rollout_operator.observed import Observed, SeenJob, WorkerJob
    from swe_rollout.spec.job import RolloutJobSpec
    from swe_rollout.spec.status import RolloutJobStatus

DRAIN = timedelta(seconds=15)
"""How long workers that were told to end keep their sandboxes."""
RELEASE = timedelta(seconds=180)
"""A job is let go after this, even if a lost node keeps a pod: its owner's end ends that."""
PREPARED = timedelta(minutes=10)
"""Rights and policy are applied again after this, in case somebody removed them."""
BUSY_S = 2.0
CALM_S = 30.0
FIGURES_S = 10.0
"""Between two writes that change nothing but counts."""
ASKED_S = 30.0
"""After a change of the spec somebody watches: counts are told as they come."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round comes to."""

    actions: tuple[Action, ...]
    status: RolloutJobStatus
    again_s: float | None
    """Look again after this, whatever happens; none: only when something changes."""
    news: tuple[Announce, ...] = ()
    """To be told once the status says the same."""


def figures_only(before: RolloutJobStatus, after: RolloutJobStatus) -> bool:
    """Whether the two say the same but for counts, and the count of episodes is known in both."""
    known = before.episodes.total == after.episodes.total
    return known and (before.state, before.conditions) == (after.state, after.conditions)


def reconcile(job: SeenJob, observed: Observed, now: datetime, *, image: str) -> Plan:
    """The round's plan; `image` is the workers' unless the job names one."""
    if job.metadata.deletion_timestamp is not None:
        steps = tuple(_release(job, observed, now))
        return Plan(steps, job.status, BUSY_S if FINALIZER in job.metadata.finalizers else None)
    status = next_status(job, observed, now)
    told = tuple(news(job.status.conditions, status.conditions, now))
    if is_over(status):
        steps = tuple(_finish(job, observed, status, now))
        return Plan(steps, status, _rest(job, observed, status, now), told)
    if job.spec is None:
        return Plan((), status, None, told)
    steps = tuple(_proceed(job, job.spec, observed, now, image=image))
    return Plan(steps, status, BUSY_S if _busy(job.spec, observed) else CALM_S, told)


def looks_for_sandboxes(job: SeenJob) -> bool:
    """Whether the plan depends on sandboxes that are left: where there should be none."""
    stopped = job.spec is not None and job.spec.suspend
    return stopped or job.metadata.deletion_timestamp is not None or is_over(job.status)


def _proceed(
    job: SeenJob, spec: RolloutJobSpec, observed: Observed, now: datetime, *, image: str
) -> Iterator[Action]:
    if FINALIZER not in job.metadata.finalizers:
        yield actions.Hold()
    if spec.suspend:
        yield from _stop(spec, observed, now)
        return
    if observed.prepared_at is None or now - observed.prepared_at > PREPARED:
        yield actions.Prepare()
    workers = observed.workers
    if workers is None:
        yield actions.CreateWorkers(resources.worker_job(job.metadata, spec, image=image))
    elif workers.finished or workers.metadata.deletion_timestamp is not None:
        return
    elif workers.metadata.annotations.get(DIGEST_ANNOTATION) != resources.digest(spec):
        # A pod template can't change: the workers drain, and others take up what they left.
        yield actions.DeleteWorkers(workers.metadata.uid)
    else:
        suspended = workers.spec.suspend if resources.queued(spec) else False
        yield from _adjust(spec, workers, suspend=suspended)


def _stop(spec: RolloutJobSpec, observed: Observed, now: datetime) -> Iterator[Action]:
    """Suspend: workers first, so that they put down their episodes themselves; then the rest."""
    workers = observed.workers
    if workers is not None and not workers.finished:
        if not resources.queued(spec):
            yield from _adjust(spec, workers, suspend=True)
        elif workers.metadata.deletion_timestamp is None:
            # Whether a queued Job runs is the queue's to say: ours is only whether there is one.
            yield actions.DeleteWorkers(workers.metadata.uid)
    yield from _clear(observed, now)


def _adjust(spec: RolloutJobSpec, workers: WorkerJob, *, suspend: bool) -> Iterator[Action]:
    deadline = resources.deadline_seconds(spec)
    if (workers.spec.suspend, workers.spec.active_deadline_seconds) != (suspend, deadline):
        yield actions.AdjustWorkers(suspend, deadline)


def _finish(
    job: SeenJob, observed: Observed, status: RolloutJobStatus, now: datetime
) -> Iterator[Action]:
    """After the end: no sandbox stays, and in time the job itself goes."""
    yield from _clear(observed, now)
    due_s = _due_s(job, status, now)
    if due_s is not None and due_s <= 0:
        yield actions.DeleteJob()


def _release(job: SeenJob, observed: Observed, now: datetime) -> Iterator[Action]:
    """Drain, then remove what is left, then let go."""
    if FINALIZER not in job.metadata.finalizers:
        return
    workers = observed.workers
    if workers is not None and workers.metadata.deletion_timestamp is None:
        yield actions.DeleteWorkers(workers.metadata.uid)
    yield from _clear(observed, now)
    asked_at = job.metadata.told_to_end_at or now
    gone = workers is None and not observed.live_pods and observed.sandboxes_left is False
    if gone or now - asked_at > RELEASE:
        yield actions.Release()


def _clear(observed: Observed, now: datetime) -> Iterator[Action]:
    """Delete sandboxes, once their workers are gone or had their time to do it themselves."""
    asked = [pod.metadata.told_to_end_at for pod in observed.live_pods]
    drained = all(since is not None and now - since > DRAIN for since in asked)
    if observed.sandboxes_left and drained:
        yield actions.DeleteSandboxes()


def _busy(spec: RolloutJobSpec, observed: Observed) -> bool:
    """Whether something is on its way that no event may tell of."""
    if spec.suspend:
        return bool(observed.live_pods) or observed.sandboxes_left is not False
    up = sum(pod.running for pod in observed.newest_pods)
    return up < spec.workers.count


def _rest(
    job: SeenJob, observed: Observed, status: RolloutJobStatus, now: datetime
) -> float | None:
    """Until something is left to do after the end: sandboxes to remove, or the job itself."""
    if observed.live_pods or observed.sandboxes_left is not False:
        return BUSY_S
    due_s = _due_s(job, status, now)
    return None if due_s is None else max(due_s, BUSY_S)


def _due_s(job: SeenJob, status: RolloutJobStatus, now: datetime) -> float | None:
    """Seconds until a finished job is to be deleted; none: never."""
    ttl_s = job.spec.ttl_seconds_after_finished if job.spec is not None else None
    if ttl_s is None or status.completion_time is None:
        return None
    ended = datetime.fromisoformat(status.completion_time)
    return (ended + timedelta(seconds=ttl_s) - now).total_seconds()
