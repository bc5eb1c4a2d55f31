"""No object that an API server admits stops the operator: labels, statuses, numbers of any kind.

Each example is a RolloutJob, a worker Job and pods as anybody with rights in one namespace could
write them. They pass through the handlers' decoding and the pure part of a round.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.builders import IMAGE, NOW, SPEC, UID, WORKERS_UID, job
from rollout_operator.__main__ import _DEEPEST
from rollout_operator.handlers import _decoded
from rollout_operator.observed import Observed, ObservedJob, WorkerJob, WorkerPod
from rollout_operator.reconcile import reconcile
from swe_rollout.spec.status import PROGRESS_ANNOTATION

pytestmark = pytest.mark.threat(point=24)

Json = dict[str, object]
MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
COMPLETE = [{"type": "Complete", "status": "True", "reason": "x", "lastTransitionTime": "x"}]
INT32, INT64 = 2**31 - 1, 2**63 - 1

texts = st.text(max_size=40)
counts = st.integers(-INT64 - 1, INT64) | st.sampled_from([0, 1, 10**12, INT32, INT64])
times = st.sampled_from(
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-20T12:00:00Z", "1969-12-31T00:00:00Z"]
)
odd_times = times | st.sampled_from(["33658-09-27T01:46:40Z", "never", "", "2026-11-20T12:00:00"])
plain = st.none() | st.booleans() | counts | st.floats(allow_nan=False) | texts
anything = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def some(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Json]:
    """Build objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


indexes = st.sampled_from(["abc", "-1", "0", "1", "9" * 63, "", "1e9", "0x1"]) | texts
progress = some(
    episodes=some(**dict.fromkeys(("total", "committed", "running", "resolved", "masked"), counts)),
    stopReasons=st.dictionaries(texts, counts, max_size=3),
    failures=st.dictionaries(texts, counts, max_size=3),
    rewardSum=st.floats(),
    unmet=st.lists(
        some(
            condition=st.sampled_from(["Complete", "Failed", "ModelReady", "SandboxesReady"]),
            reason=texts,
            message=texts,
        ),
        max_size=2,
    ),
    finished=st.booleans(),
).map(json.dumps)
conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Complete", "Failed", "FailureTarget", "PodScheduled", "X"]),
            "status": st.sampled_from(["True", "False", "Unknown"]),
        },
        optional={"reason": texts, "message": texts},
    ),
    max_size=3,
)
states = some(
    running=some(startedAt=odd_times),
    waiting=some(reason=texts, message=texts),
    terminated=some(exitCode=st.integers(-(2**31), INT32), reason=texts, message=texts),
)


def metadata(uid: str, owner: str, annotations: st.SearchStrategy[str]) -> st.SearchStrategy[Json]:
    """Build metadata of an object in the job's namespace."""
    return st.fixed_dictionaries(
        {
            "name": st.just("demo"),
            "namespace": st.just("team"),
            "uid": st.just(uid) | texts,
            "creationTimestamp": times,
        },
        optional={
            "labels": st.dictionaries(
                st.sampled_from(
                    ["batch.kubernetes.io/job-completion-index", "swe-rollout.dev/job"]
                ),
                indexes,
            ),
            "annotations": st.dictionaries(
                st.sampled_from([PROGRESS_ANNOTATION, "swe-rollout.dev/workers-digest"]),
                annotations | texts,
            ),
            "ownerReferences": st.lists(
                some(uid=st.just(owner) | texts, controller=st.booleans() | st.none()), max_size=2
            ),
            "generation": counts,
            "deletionTimestamp": odd_times,
            "deletionGracePeriodSeconds": counts,
            "finalizers": st.lists(texts, max_size=2),
        },
    )


valid_specs = st.fixed_dictionaries(
    {name: st.just(value) for name, value in SPEC.items()}
    | {"workers": some(count=st.integers(1, 3))},
    optional={
        "ttlSecondsAfterFinished": st.sampled_from([0, 60, 10**6]),
        "activeDeadlineSeconds": st.sampled_from([0.5, 60, 10**6]),
        "suspend": st.booleans(),
    },
)
any_specs = some(
    dataset=st.just({"releasePairs": {}}),
    policy=st.just({"scripted": {}}),
    sandbox=st.just({"pod": {}}) | anything,
    store=st.just({"uri": "s3://rollouts"}),
    workers=some(count=counts, labels=anything, resources=anything),
    agent=some(**{"with": anything, "tools": anything}),
    samples=counts,
    ttlSecondsAfterFinished=counts,
    activeDeadlineSeconds=counts | st.floats(allow_nan=False),
    suspend=st.booleans(),
)
jobs = st.fixed_dictionaries(
    {"metadata": metadata(UID, "", texts)},
    optional={
        "spec": valid_specs | valid_specs | any_specs,
        "status": some(
            state=texts,
            startTime=odd_times,
            completionTime=odd_times,
            conditions=anything | st.just(COMPLETE),
            episodes=anything,
            rewardSum=st.floats(),
        ),
    },
)
worker_jobs = st.fixed_dictionaries(
    {"metadata": metadata(WORKERS_UID, UID, texts)},
    optional={
        "spec": some(
            suspend=st.booleans(),
            completions=st.none() | st.integers(0, INT32),
            activeDeadlineSeconds=counts,
        ),
        "status": some(startTime=times, completionTime=times, conditions=conditions),
    },
)
pods = st.fixed_dictionaries(
    {"metadata": metadata("pod", WORKERS_UID, progress)},
    optional={
        "status": some(
            phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
            conditions=conditions,
            containerStatuses=st.lists(some(name=texts, state=states), max_size=2),
        )
    },
)


def job_of(found: Json) -> ObservedJob | None:
    """Decode a job as the handler does, where an error in this form ends with the one object."""
    try:
        return ObservedJob.of(found)
    except msgspec.ValidationError:
        return None


@MANY
@given(found=jobs, workers=worker_jobs, workers_pods=st.lists(pods, max_size=3))
def test_a_round_of_any_job_ends_with_a_plan(
    found: Json, workers: Json, workers_pods: list[Json]
) -> None:
    seen = job_of(found)
    if seen is None:
        return
    decoded = [_decoded({"object": each}, WorkerPod) for each in workers_pods]
    known = [pod for pod in decoded if pod is not None and pod.index >= 0]
    observed = Observed(
        workers=_decoded({"object": workers}, WorkerJob),
        pods=tuple(known),
        progress={pod.index: said for pod in known if (said := pod.progress) is not None},
        sandboxes_left=False,
    )

    plan = reconcile(seen, observed, NOW, image=IMAGE)

    written = plan.status.model_dump(mode="json", by_alias=True)
    assert max(written["episodes"].values()) < 2**53
    assert all(len(each["message"]) < 100_000 for each in written["conditions"])
    json.dumps(written, allow_nan=False)


def test_the_deepest_json_of_an_api_server_is_a_spec_with_a_problem(
    recursion_limit: None,  # noqa: ARG001
) -> None:
    depth = 9_990
    deep = json.loads('{"a":' * depth + "1" + "}" * depth)
    meta = {"name": "demo", "namespace": "team", "uid": UID}
    spec = {"dataset": {"releasePairs": {}}, "agent": {"with": deep}}

    found = ObservedJob.of({"metadata": meta, "spec": spec})

    assert found.spec is None
    assert found.problems


def test_a_finished_job_may_live_longer_than_the_calendar() -> None:
    done: Json = {"completionTime": "2026-11-20T12:00:00Z", "conditions": COMPLETE}
    over = job({"ttlSecondsAfterFinished": 10**12}, status=done)

    plan = reconcile(over, Observed(sandboxes_left=False), datetime.now(UTC), image=IMAGE)

    assert plan.actions == ()


@pytest.fixture
def recursion_limit() -> Iterator[None]:
    """Set the limit that the operator sets, for one test."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    yield
    sys.setrecursionlimit(before)
