"""Compute the status of a job: counts, conditions, state, and the resulting events. Pure.

Conditions are authoritative; `state` and the texts are derived from them for people. Events are
derived from changed conditions, so that each is recorded once, despite restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from rollout_operator import resources
from rollout_operator.actions import EventType, RecordEvent
from rollout_operator.counts import Counts
from rollout_operator.diagnose import fatal_message, one_line, unmet_worker_condition
from rollout_operator.observed import Observed, ObservedJob, WorkerJob
from rollout_operator.sightings import Stage
from swe_rollout.cluster.objects import KubernetesCondition
from swe_rollout.spec.bounds import BUDGET_FLOOR
from swe_rollout.spec.job import RolloutJobSpec
from swe_rollout.spec.status import (
    ROUND_FAILED,
    Condition,
    ConditionType,
    RolloutJobStatus,
    State,
    UnmetCondition,
)

FINAL_PROGRESS_S = 10.0
"""How long a job whose workers have ended waits for their final progress."""
BUDGET_SPENT = "BudgetSpent"
"""The reason of a job that failed although its workers could continue."""
_READY = (ConditionType.STORAGE_READY, ConditionType.MODEL_READY, ConditionType.SANDBOXES_READY)


@dataclass(frozen=True, slots=True)
class Finding:
    """The current value of a condition."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def next_status(job: ObservedJob, observed: Observed, now: datetime) -> RolloutJobStatus:
    """Compute the job's status, which equals the previous one if nothing has changed."""
    previous = job.status
    counts = Counts.of(observed, previous)
    conditions = _merge(job, tuple(_findings(job, observed, counts)), now)
    over = _is_true(conditions, ConditionType.COMPLETE, ConditionType.FAILED)
    workers = observed.workers
    started = workers.status.start_time if workers is not None else None
    update = {
        "observed_generation": job.metadata.generation,
        "state": _state(conditions, observed, counts),
        "progress": f"{counts.outcomes.committed}/{counts.total}",
        "mean_reward": _two_digits(counts, job.spec),
        "resolved": f"{counts.outcomes.resolved}/{counts.outcomes.graded}",
        "policy": _policy(job.spec) if job.spec is not None else previous.policy,
        "episodes": counts.episodes,
        # What the worker Job has, even of an operator that chose another number.
        "workers": previous.workers if workers is None else workers.spec.completions,
        "stop_reasons": dict(sorted(counts.outcomes.stop_reasons.items())),
        "failures": dict(sorted(counts.outcomes.failures.items())),
        "reward_sum": counts.outcomes.reward_sum,
        "conditions": conditions,
        "start_time": previous.start_time or (None if started is None else _time(started)),
        "completion_time": (previous.completion_time or _time(now)) if over else None,
        "selector": resources.sandbox_selector(job.metadata.name),
    }
    return previous.model_copy(update=update)


def with_failed_round(job: ObservedJob, why: str, now: datetime) -> RolloutJobStatus:
    """Return the status of a job whose round failed and will be retried."""
    message = f"the operator can't carry out this job, and tries again: {one_line(why)}"
    finding = Finding(ConditionType.ACCEPTED, "False", ROUND_FAILED, message)
    return job.status.model_copy(update={"conditions": _merge(job, (finding,), now)})


def events_of(
    before: tuple[Condition, ...], after: tuple[Condition, ...], now: datetime
) -> Iterator[RecordEvent]:
    """Derive events from conditions that changed or are false for a new reason."""
    known = {each.type: each for each in before}
    for each in after:
        old = known.get(each.type)
        if old is not None and (old.status, old.reason) == (each.status, each.reason):
            continue
        if (kind := _event_type(old, each)) is not None:
            text = each.message or f"{each.type} is {each.status.lower()} now"
            yield RecordEvent(kind, each.reason, text, now)


def must_stop(status: RolloutJobStatus) -> bool:
    """Whether the job has failed although its workers could continue."""
    failed = ConditionType.FAILED
    return any((each.type, each.reason) == (failed, BUDGET_SPENT) for each in status.conditions)


def is_over(status: RolloutJobStatus) -> bool:
    """Whether the job is complete or failed."""
    return _is_true(status.conditions, ConditionType.COMPLETE, ConditionType.FAILED)


def _event_type(old: Condition | None, new: Condition) -> EventType | None:
    changed = old is not None and old.status != new.status
    match new.type, new.status:
        case ConditionType.FAILED, "True":
            return EventType.WARNING
        case ((ConditionType.COMPLETE | ConditionType.SUSPENDED), "True"):
            return EventType.NORMAL
        case ((ConditionType.COMPLETE | ConditionType.FAILED), _):
            return None
        case kind, "False" if kind is not ConditionType.SUSPENDED:
            return EventType.WARNING
        case _:
            return EventType.NORMAL if changed else None


def _findings(job: ObservedJob, observed: Observed, counts: Counts) -> Iterator[Finding]:
    if job.spec is None:
        yield Finding(ConditionType.ACCEPTED, "False", "InvalidSpec", job.problems)
        return
    yield Finding(ConditionType.ACCEPTED, "True", "Valid")
    if is_over(job.status):
        return
    yield _suspended(job.spec, observed)
    yield from _services(observed)
    yield from _end(job.spec, observed, counts)


def _suspended(spec: RolloutJobSpec, observed: Observed) -> Finding:
    kind = ConditionType.SUSPENDED
    if spec.suspend and (observed.live_pods or observed.sandboxes_left is not False):
        return Finding(kind, "False", "Suspending", "workers drain and sandboxes are deleted")
    if spec.suspend:
        message = "spec.suspend is true: no episode is started; set it to false to resume"
        return Finding(kind, "True", "SuspendedBySpec", message)
    if observed.workers is not None and observed.workers.spec.suspend and resources.queued(spec):
        queue = spec.workers.labels[resources.QUEUE_LABEL]
        return Finding(kind, "True", "Queued", f"the workers wait in the queue {queue}")
    return Finding(kind, "False", "NotSuspended")


def _services(observed: Observed) -> Iterator[Finding]:
    """Derive the conditions of store, engine and sandboxes from the workers' progress."""
    unmet: dict[ConditionType, UnmetCondition] = {}
    if (own := unmet_worker_condition(observed)) is not None:
        unmet[own.condition] = own
    # Ended workers count too: a short job must not end before its reason is reported.
    reports = [found for pod in observed.newest_pods if (found := pod.progress) is not None]
    for each in (each for report in reports for each in report.unmet):
        unmet.setdefault(each.condition, each)
    reported = any(report.episodes.total for report in reports)
    for kind in _READY:
        if (cause := unmet.get(kind)) is not None:
            yield Finding(kind, "False", cause.reason, one_line(cause.message))
        elif reported:
            yield Finding(kind, "True", "Ready")


def _budget(spec: RolloutJobSpec, counts: Counts, *, at_least: int) -> Finding | None:
    """Judge the failure budget for the whole job; unreported episodes count as good."""
    masked, finished = counts.outcomes.masked, counts.outcomes.committed
    budget = spec.failure_budget
    if not budget.is_spent(masked, finished + counts.unknown, at_least=at_least):
        return None
    text = (
        f"the failure budget is spent: {masked} of {finished} episodes of all workers were masked, "
        f"which have no reward; spec.failureBudget.maxMaskedFraction allows "
        f"{budget.max_masked_fraction:g} of them. Fix the cause (status.failures counts it by "
        "type), then delete this job and create it again: committed episodes stay"
    )
    return Finding(ConditionType.FAILED, "True", BUDGET_SPENT, text)


def _end(spec: RolloutJobSpec, observed: Observed, counts: Counts) -> Iterator[Finding]:
    workers = observed.workers
    if workers is None or workers.metadata.deletion_timestamp is not None:
        return
    # A recreated job continues, however many were masked before the cause was fixed.
    if counts.masked_now and (spent := _budget(spec, counts, at_least=BUDGET_FLOOR)) is not None:
        yield spent
        return
    # FailureTarget may be set before the pods end and the reason is known, so wait.
    if (failed := workers.condition("Failed")) is not None or (
        (failed := workers.condition("FailureTarget")) is not None and fatal_message(observed)
    ):
        yield _failure(spec, observed, failed)
    elif workers.condition("Complete") is not None and _progress_is_final(workers, observed):
        yield _success(spec, workers, observed, counts)


def _progress_is_final(workers: WorkerJob, observed: Observed) -> bool:
    """Whether every worker's final progress is known; it may arrive just after the end."""
    progress = [observed.progress.get(index) for index in range(workers.spec.completions)]
    is_late = observed.age_s(workers.metadata.uid, Stage.OVER) > FINAL_PROGRESS_S
    return is_late or all(each is not None and each.finished for each in progress)


def _success(
    spec: RolloutJobSpec, workers: WorkerJob, observed: Observed, counts: Counts
) -> Finding:
    """Trust the workers' progress, not their exit codes: any image can exit with 0."""
    done, number = counts.episodes, workers.spec.completions
    # An earlier operator may have counted a shard whose pod is gone.
    silent = [
        pod.index
        for pod in observed.newest_pods
        if (found := observed.progress.get(pod.index)) is None or not found.finished
    ]
    if silent or not (observed.progress or done.committed):
        text = (
            f"{len(silent) or number} of {number} workers exited with 0 "
            f"before they reported their share as committed ({done.committed} of {done.total} "
            "episodes are): spec.workers.image must be an image of swe-rollout. What is committed "
            "stays; delete this job and create it again to continue"
        )
        return Finding(ConditionType.FAILED, "True", "WorkersEndedEarly", text)
    if (spent := _budget(spec, counts, at_least=0)) is not None:
        return spent
    message = f"{done.committed} of {done.total} episodes committed, {done.masked} masked"
    message += f", {done.replaced} of them replaced" if done.replaced else ""
    return Finding(ConditionType.COMPLETE, "True", "AllCommitted", message)


def _failure(spec: RolloutJobSpec, observed: Observed, failed: KubernetesCondition) -> Finding:
    kind = ConditionType.FAILED
    match failed.reason:
        case "DeadlineExceeded":
            text = (
                f"the job's deadline has passed: spec.activeDeadlineSeconds is "
                f"{spec.active_deadline_seconds or 0:g}; committed episodes stay, and a job of "
                "this name and store continues from them: delete this one, create it again"
            )
            return Finding(kind, "True", "DeadlineExceeded", text)
        case "PodFailurePolicy":
            words = fatal_message(observed) or one_line(failed.message)
            return Finding(kind, "True", "WorkerFailed", words)
        case _:
            unmet = unmet_worker_condition(observed)
            words = unmet.message if unmet is not None else one_line(failed.message)
            return Finding(kind, "True", "WorkersLost", f"workers keep failing: {words}")


def _merge(job: ObservedJob, findings: tuple[Finding, ...], now: datetime) -> tuple[Condition, ...]:
    """Merge the findings into the conditions, in a fixed order; others stay unchanged."""
    before = {each.type: each for each in job.status.conditions}
    found = {each.type: each for each in findings}
    merged = (_condition(job, before.get(kind), found.get(kind), now) for kind in ConditionType)
    return tuple(each for each in merged if each is not None)


def _condition(
    job: ObservedJob, before: Condition | None, found: Finding | None, now: datetime
) -> Condition | None:
    if found is None:
        return before
    changed = before is None or before.status != found.status
    return Condition(
        type=found.type,
        status=found.status,
        reason=found.reason,
        message=found.message,
        last_transition_time=_time(now)
        if before is None or changed
        else before.last_transition_time,
        observed_generation=job.metadata.generation,
    )


def _state(conditions: tuple[Condition, ...], observed: Observed, counts: Counts) -> State:
    reasons = {each.type: each.reason for each in conditions if each.status == "True"}
    if ConditionType.FAILED in reasons:
        return State.FAILED
    if ConditionType.COMPLETE in reasons:
        return State.COMPLETE
    if reasons.get(ConditionType.SUSPENDED) == "SuspendedBySpec":
        return State.SUSPENDED
    if ConditionType.ACCEPTED not in reasons and observed.workers is None:
        return State.FAILED
    working = any(pod.running for pod in observed.pods)
    if working or (counts.total and reasons.get(ConditionType.SUSPENDED) != "Queued"):
        return State.RUNNING
    return State.PENDING


def _is_true(conditions: tuple[Condition, ...], *kinds: ConditionType) -> bool:
    return any(each.type in kinds and each.status == "True" for each in conditions)


def _policy(spec: RolloutJobSpec) -> str:
    """Describe the policy, showing only the host of an address, which holds no key."""
    policy = spec.policy
    if (own := policy.engine or policy.chat) is not None:
        return own.use
    if (local := policy.transformers) is not None:
        return f"transformers:{local.model}"
    if (api := policy.openai or policy.anthropic) is not None:
        return f"{api.model}@{urlsplit(api.url).hostname or ''}"
    if policy.sglang is not None:
        return f"sglang:{urlsplit(policy.sglang.address).hostname or ''}"
    return "scripted"


def _two_digits(counts: Counts, spec: RolloutJobSpec | None) -> str:
    mean = counts.outcomes.mean_reward
    return "" if mean is None or (spec is not None and not spec.grading.enabled) else f"{mean:.2f}"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
