"""The page about retries: its table has the limits of the code."""

from __future__ import annotations

import re

import pytest

from checkout import ROOT
from rollout_operator import resources
from swe_rollout import context
from swe_rollout.agent import policy_turns
from swe_rollout.cluster import jobs, transport
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.engine.chat import http
from swe_rollout.engine.pool import pool
from swe_rollout.engine.pool.replica import PoolTiming
from swe_rollout.engine.sglang import engine
from swe_rollout.journal import writer
from swe_rollout.sandbox.pods import launch, provider
from swe_rollout.sandbox.session import connection
from swe_rollout.spec.limits import RetrySpec
from swe_rollout.spec.policy import OpenaiPolicy, SglangPolicy
from swe_rollout.spec.status import REACHES_API_S
from swe_rollout.store import bucket
from swe_rollout.worker import (
    cluster_worker,
    resume,
    service_health,
    start_guard,
)

PAGE = (ROOT / "docs" / "explanation" / "retries.md").read_text("utf-8")
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| ([\w ,']+)<br>.*$", PAGE, re.MULTILINE)}
SGLANG, CHAT = SglangPolicy.model_fields, OpenaiPolicy.model_fields
LOCAL, CLUSTER = service_health.LOCAL_PATIENCE_S, service_health.STORE_PATIENCE_S
PAUSES = service_health.FIRST_PAUSE_S, service_health.LONGEST_PAUSE_S
REQUEST_S = (ClusterClient.connect.__kwdefaults__ or {})["retry_timeout_s"]
TIMING = PoolTiming()
LIMITS: dict[str, tuple[float, ...]] = {
    "call of the store": (bucket._ATTEMPTS, bucket._RETRY_S),
    "request to the API server": (
        *(REQUEST_S, REACHES_API_S, jobs.RETRY_TIMEOUT_S),
        transport.MAX_BACKOFF_S,
    ),
    "stream of a sandbox": (
        *(connection.REATTACH_S, connection._FIRST_PAUSE_S, connection._MAX_PAUSE_S),
    ),
    "pod of a sandbox": (launch._CREATE_ATTEMPTS, provider.SCARCE_RETRY_S),
    "request to an engine's server": (
        *(SGLANG["retries"].default, CHAT["retries"].default),
        *(engine.MAX_WAIT_S, http.MAX_WAIT_S),
    ),
    "call of the engine": (
        *(SGLANG["outage_seconds"].default, pool.MAX_CRASHES, pool.MAX_LOSSES),
        *(TIMING.first_backoff_s, TIMING.max_backoff_s),
    ),
    "turn": (policy_turns.MAX_ABORTS_PER_TURN, policy_turns._BACKOFF.max),
    "start of a sandbox": (
        *(start_guard.FAILURES, LOCAL, CLUSTER, start_guard.ONE_TASK_PATIENCE_S),
        *(start_guard.FIRST_PAUSE_S, PAUSES[1]),
    ),
    "grading": (context.SCARCITY_TIMEOUT_S, context.MAX_RETRY_WAIT_S),
    "attempt, at nobody's expense": (LOCAL,),
    "attempt": (RetrySpec().attempts, RetrySpec().backoff_seconds),
    "sample": (RetrySpec().refills,),
    "commit": (LOCAL, CLUSTER),
    "write of a journal": (writer.PATIENCE_S, resume.PATIENCE_S),
    "worker": PAUSES,
    "container, pod": (cluster_worker.MOST, resources._FAILURES_PER_INDEX),
}


@pytest.mark.parametrize("level", LIMITS)
def test_a_row_has_the_limits_of_its_level(level: str) -> None:
    numbers = re.findall(r"\d+(?:\.\d+)?", ROWS[level].partition("<br>")[2])
    assert [each for each in LIMITS[level] if f"{each:g}" not in numbers] == []


def test_every_level_with_a_limit_is_checked_and_every_module_named_is_there() -> None:
    assert ROWS.keys() - LIMITS.keys() == {"episode, from its last durable turn"}
    for name in re.findall(r"<br>`([\w/.]+)`", PAGE):
        assert (ROOT / "swe_rollout" / name).exists(), name
