"""Write the Grafana dashboard: its panels, and the queries that they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_S: Final = 'namespace=~"$namespace", rolloutjob=~"$rolloutjob"'
_R: Final = "[$__rate_interval]"
_COLUMNS: Final = 24
_WIDTH: Final = 8
_HEIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    unit: str
    """One of Grafana's."""
    queries: tuple[Query, ...]
    help: str = ""
    kind: str = "timeseries"


def _rate(metric: str, *labels: str, more: str = "") -> str:
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{by} (rate({metric}{{{_S}{more}}}{_R}))"


def _quantile(share: float, metric: str, *labels: str) -> str:
    return f"histogram_quantile({share:g}, {_rate(f'{metric}_bucket', 'le', *labels)})"


_POINTS: Final = "swe_rollout_reward_points_total"
PANELS: Final = (
    Panel(
        "Episodes committed",
        "eph",
        (
            Query(
                f"3600 * {_rate('swe_rollout_episodes_finished_total', 'outcome')}", "{{outcome}}"
            ),
        ),
        "Per hour, by outcome.",
    ),
    Panel(
        "Mean reward",
        "none",
        (
            Query(
                f"""({_rate(_POINTS, more=', sign="positive"')}"""
                f""" - {_rate(_POINTS, more=', sign="negative"')})"""
                f" / {_rate('swe_rollout_reward_count')}",
                "mean",
            ),
        ),
        "Of episodes that were committed with a reward.",
    ),
    Panel(
        "Rewards",
        "short",
        (Query(f"sum by (le) (increase(swe_rollout_reward_bucket{{{_S}}}{_R}))", "{{le}}"),),
        "How many episodes had which reward.",
        kind="heatmap",
    ),
    Panel(
        "Queue",
        "short",
        (
            Query(f"sum (swe_rollout_episodes_queued{{{_S}}})", "queued"),
            Query(f"sum by (phase) (swe_rollout_episodes_running{{{_S}}})", "{{phase}}"),
        ),
        "Episodes that wait, and those that run by phase.",
    ),
    Panel(
        "Failed attempts",
        "eph",
        (
            Query(
                f"3600 * {_rate('swe_rollout_attempts_failed_total', 'owner', 'type')}",
                "{{owner}}: {{type}}",
            ),
        ),
        "Per hour, by owner and type.",
    ),
    Panel(
        "Engine against tools",
        "short",
        (
            Query(_rate("swe_rollout_engine_call_seconds_sum"), "engine"),
            Query(_rate("swe_rollout_tool_seconds_sum"), "tools"),
            Query(_rate("swe_rollout_wait_seconds_total", "service"), "waits for the {{service}}"),
        ),
        "Episodes that are there at a time: seconds spent per second.",
    ),
    Panel(
        "Calls of the engine",
        "s",
        (
            Query(_quantile(0.5, "swe_rollout_engine_call_seconds"), "p50"),
            Query(_quantile(0.95, "swe_rollout_engine_call_seconds"), "p95"),
        ),
    ),
    Panel(
        "Tokens",
        "short",
        (
            Query(_rate("swe_rollout_sampled_tokens_total"), "sampled per second"),
            Query(_rate("swe_rollout_turns_total"), "turns per second"),
        ),
    ),
    Panel(
        "Prefix cache",
        "percentunit",
        (
            Query(
                f"{_rate('swe_rollout_prefix_cache_hit_tokens_total')}"
                f" / {_rate('swe_rollout_prompt_tokens_total')}",
                "hit",
            ),
        ),
        "Share of the prompts' tokens that the engine had in its cache.",
    ),
    Panel(
        "Tool calls",
        "cps",
        (Query(_rate("swe_rollout_tool_calls_total", "status"), "{{status}}"),),
        "How the policy's calls were parsed.",
    ),
    Panel(
        "Tools, p95",
        "s",
        (Query(_quantile(0.95, "swe_rollout_tool_seconds", "tool"), "{{tool}}"),),
    ),
    Panel(
        "Commands, p95",
        "s",
        (Query(_quantile(0.95, "swe_rollout_exec_seconds", "role"), "{{role}}"),),
    ),
    Panel(
        "Starts of sandboxes",
        "s",
        (
            Query(_quantile(0.5, "swe_rollout_sandbox_start_seconds", "start"), "p50 {{start}}"),
            Query(_quantile(0.95, "swe_rollout_sandbox_start_seconds", "start"), "p95 {{start}}"),
        ),
    ),
    Panel(
        "Starts per second",
        "cps",
        (
            Query(
                _rate("swe_rollout_sandbox_start_seconds_count", "role", "start"),
                "{{role}}, {{start}}",
            ),
            Query(_rate("swe_rollout_sandbox_start_errors_total", "type"), "{{type}}"),
        ),
    ),
    Panel(
        "Phases, p95",
        "s",
        (Query(_quantile(0.95, "swe_rollout_phase_seconds", "phase"), "{{phase}}"),),
    ),
    Panel(
        "Errors of services",
        "cps",
        (
            Query(_rate("swe_rollout_engine_call_errors_total", "type"), "engine: {{type}}"),
            Query(_rate("swe_rollout_store_errors_total", "type"), "store: {{type}}"),
        ),
        "Calls that failed; most are tried again.",
    ),
    Panel(
        "Lag of the event loop, p99",
        "s",
        (Query(_quantile(0.99, "swe_rollout_event_loop_lag_seconds"), "p99"),),
        "Above 0.1 s a worker is short of CPU, or code holds its loop.",
    ),
    Panel(
        "Workers",
        "short",
        (
            Query(
                f"sum (rate(process_cpu_seconds_total{{{_S}}}{_R})"
                f" and on (job, instance) swe_rollout_episodes_planned{{{_S}}})",
                "CPUs",
            ),
            Query(
                f"sum (process_resident_memory_bytes{{{_S}}}"
                f" and on (job, instance) swe_rollout_episodes_planned{{{_S}}}) / 2^30",
                "GiB of memory",
            ),
            Query(f"count (swe_rollout_episodes_planned{{{_S}}})", "processes"),
        ),
    ),
    Panel("Jobs", "short", (Query("swe_rollout_jobs", "{{state}}"),), "By the operator."),
    Panel(
        "Progress of jobs",
        "percentunit",
        (
            Query(
                f'swe_rollout_episodes{{{_S}, kind="committed"}} / ignoring (kind)'
                f' swe_rollout_episodes{{{_S}, kind="total"}}',
                "{{namespace}}/{{rolloutjob}}",
            ),
        ),
        "Committed episodes, by the operator.",
    ),
    Panel(
        "The operator",
        "short",
        (
            Query(
                f"histogram_quantile(0.95, rate(swe_rollout_round_seconds_bucket{_R}))",
                "round, p95 seconds",
            ),
            Query(f"sum (rate(swe_rollout_status_writes_total{_R}))", "status writes per second"),
            Query(
                f"sum by (action) (rate(swe_rollout_actions_total{_R}))", "{{action}} per second"
            ),
        ),
    ),
)


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    shown = {
        "title": "swe-rollout",
        "uid": "swe-rollout",
        "description": "Rollouts: throughput, rewards, time, failures. Made by scripts/generate.",
        "tags": ["swe-rollout"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(shown, indent=2) + "\n"


def _variables() -> Iterator[dict[str, object]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    for name in ("namespace", "rolloutjob"):
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": f"label_values(swe_rollout_episodes_planned, {name})",
            "refresh": 2,
            "includeAll": True,
            # A process outside of a cluster has no such label.
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _panel(number: int, panel: Panel) -> dict[str, object]:
    row, column = divmod(number * _WIDTH, _COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "description": panel.help,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": {"x": column, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
            }
            for at, query in enumerate(panel.queries)
        ],
    }
