"""The metrics of a rollout process: names, labels, buckets. Nothing is counted here.

Names and units follow Prometheus: seconds, `_total` for counters. No label names a job, a task or
an episode; names chosen by user code and tool servers (tools, types of errors) are limited to
`LABEL_VALUES` values. docs/reference/metrics.md is generated from this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LABEL_VALUES: Final = 32
"""Distinct values per label; all further ones become `other`."""


class Kind(StrEnum):
    """Types of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""


_CALL_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_COMMAND_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
_START_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_PHASE_S: Final = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600)
_LAG_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_REWARDS: Final = (-1, -0.5, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2)

PLANNED: Final = Metric(
    "swe_rollout_episodes_planned", Kind.GAUGE, "Episodes of the job, or of the worker's share."
)
QUEUED: Final = Metric(
    "swe_rollout_episodes_queued", Kind.GAUGE, "Episodes that are neither running nor committed."
)
RUNNING: Final = Metric(
    "swe_rollout_episodes_running", Kind.GAUGE, "Episodes that run, by phase.", ("phase",)
)
FINISHED: Final = Metric(
    "swe_rollout_episodes_finished_total",
    Kind.COUNTER,
    "Episodes that this process committed: `resolved`, `unresolved`, `tampered`, `ungraded` or "
    "`masked`.",
    ("outcome",),
)
REWARD: Final = Metric(
    "swe_rollout_reward",
    Kind.HISTOGRAM,
    "Rewards of committed episodes. Without a sum: rewards may be negative.",
    buckets=_REWARDS,
)
REWARD_SUM: Final = Metric(
    "swe_rollout_reward_points_total",
    Kind.COUNTER,
    "Sum of the absolute values of rewards, by `sign`: `positive` or `negative`.",
    ("sign",),
)
ATTEMPTS: Final = Metric(
    "swe_rollout_attempts_total", Kind.COUNTER, "Attempts at episodes that began."
)
ATTEMPTS_FAILED: Final = Metric(
    "swe_rollout_attempts_failed_total",
    Kind.COUNTER,
    "Attempts that something broke, by its owner and type (failures.md).",
    ("owner", "type"),
)
PHASE: Final = Metric(
    "swe_rollout_phase_seconds",
    Kind.HISTOGRAM,
    "Time of an attempt in a phase: `start`, `agent`, `grade`, `commit`.",
    ("phase",),
    _PHASE_S,
)
TURNS: Final = Metric("swe_rollout_turns_total", Kind.COUNTER, "Turns that ended.")
ENGINE: Final = Metric(
    "swe_rollout_engine_call_seconds",
    Kind.HISTOGRAM,
    "Calls of the engine that returned, without the time for which no server took them.",
    buckets=_CALL_S,
)
ENGINE_ERRORS: Final = Metric(
    "swe_rollout_engine_call_errors_total",
    Kind.COUNTER,
    "Calls of the engine that raised, by the class of the error.",
    ("type",),
)
PROMPT: Final = Metric(
    "swe_rollout_prompt_tokens_total", Kind.COUNTER, "Tokens of prompts, over all calls."
)
CACHED: Final = Metric(
    "swe_rollout_prefix_cache_hit_tokens_total",
    Kind.COUNTER,
    "Tokens of prompts that the engine read from its prefix cache.",
)
SAMPLED: Final = Metric("swe_rollout_sampled_tokens_total", Kind.COUNTER, "Tokens sampled.")
CALLS: Final = Metric(
    "swe_rollout_tool_calls_total",
    Kind.COUNTER,
    "Attempts at tool calls, by how they were parsed: `ok`, `invalid_json`, `unclosed`, …",
    ("status",),
)
TOOL: Final = Metric(
    "swe_rollout_tool_seconds",
    Kind.HISTOGRAM,
    "Tool calls that were carried out, by tool.",
    ("tool",),
    _COMMAND_S,
)
EXEC: Final = Metric(
    "swe_rollout_exec_seconds",
    Kind.HISTOGRAM,
    "Commands in sandboxes, by the role of the sandbox: `agent` or `grader`.",
    ("role",),
    _COMMAND_S,
)
START: Final = Metric(
    "swe_rollout_sandbox_start_seconds",
    Kind.HISTOGRAM,
    "Starts of sandboxes, by role and by `start`: `cold`, or `warm` if one was waiting.",
    ("role", "start"),
    _START_S,
)
START_ERRORS: Final = Metric(
    "swe_rollout_sandbox_start_errors_total",
    Kind.COUNTER,
    "Starts of sandboxes that failed, by the class of the error.",
    ("type",),
)
STORE_ERRORS: Final = Metric(
    "swe_rollout_store_errors_total",
    Kind.COUNTER,
    "Reads and writes that the store refused, by the class of the error; each is tried again.",
    ("type",),
)
WAIT: Final = Metric(
    "swe_rollout_wait_seconds_total",
    Kind.COUNTER,
    "Time for which episodes waited for the `engine` or the `store`, over all of them.",
    ("service",),
)
CACHE_AWAITED: Final = Metric(
    "swe_rollout_cache_awaited",
    Kind.GAUGE,
    "Number that waits for room in the engine's KV cache: a `start` of an episode or its next "
    "`turn`.",
    ("what",),
)
LAG: Final = Metric(
    "swe_rollout_event_loop_lag_seconds",
    Kind.HISTOGRAM,
    "How much later than asked the event loop woke up; sampled twice a second.",
    buckets=_LAG_S,
)

METRICS: Final = (
    *(PLANNED, QUEUED, RUNNING, FINISHED, REWARD, REWARD_SUM, ATTEMPTS, ATTEMPTS_FAILED, PHASE),
    *(TURNS, ENGINE, ENGINE_ERRORS, PROMPT, CACHED, SAMPLED, CALLS, TOOL, EXEC, START),
    *(START_ERRORS, STORE_ERRORS, WAIT, CACHE_AWAITED, LAG),
)
"""All metrics, in the order of the reference."""
