"""Lay out a snapshot as rows of facts: for a terminal, a notebook, or lines of a log.

A row's number of facts may change; a source's number of rows never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swe_rollout.live.snapshot import (
    AWAITING_CACHE,
    COMMITTING,
    Count,
    Durations,
    Records,
    Snapshot,
)
from swe_rollout.text.escaping import one_line
from swe_rollout.text.formatting import (
    format_duration,
    format_number,
    format_share,
    sparkline,
)

_SHARE_BAR = 10


@dataclass(frozen=True, slots=True)
class Fact:
    """A few words of a row, shown together or not at all."""

    text: str
    style: str = ""
    """A colour, such as `green`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A label and its facts, the most important first."""

    label: str
    facts: tuple[Fact, ...]
    rank: int
    """Rows of high rank are omitted if there are few lines."""


def rows_of(snapshot: Snapshot) -> list[Row]:
    """Return the rows of a snapshot in display order."""
    records = snapshot.records
    found = [
        Row("episodes", _facts(*_episodes(snapshot)), 1),
        Row("phases", _facts(*_phases(snapshot)), 2),
    ]
    if records is not None:
        found.append(Row("speed", _facts(*_speed(snapshot, records)), 6))
    found.append(Row("reward", (*_bars(records), *_facts(*_reward(snapshot))), 3))
    if records is not None:
        found += [
            Row("groups", _facts(_groups(records)), 4),
            Row("turn", (_spark(records.turns), *_facts(*_turn(records))), 5),
            Row("time", _facts(*_time(records)), 7),
        ]
    found.append(Row("verdicts", _facts(_counted(snapshot.verdicts)), 9))
    found.append(Row("failures", _failures(snapshot), 8))
    if snapshot.problem is not None:
        shown = one_line(snapshot.problem)
        found.append(Row("problem", (Fact(shown or "none", "red" if shown else ""),), 2))
    return found


def times_of(snapshot: Snapshot) -> str:
    """Return the elapsed time and the estimated time left."""
    eta = "" if snapshot.eta_s is None else f"  eta ~{format_duration(round(snapshot.eta_s))}"
    return f"{format_duration(round(snapshot.elapsed_s))}{eta}"


def _episodes(snapshot: Snapshot) -> list[str]:
    rate, idle_s = snapshot.episodes_per_min, snapshot.idle_s
    return [
        f"{snapshot.committed}/{snapshot.total}",
        format_share(snapshot.committed, snapshot.total),
        f"{rate:.1f}/min" if rate is not None and snapshot.records is None else "",
        f"{snapshot.retries} retried" if snapshot.retries else "",
        "" if idle_s is None else f"last commit {format_duration(round(idle_s))} ago",
    ]


def _phases(snapshot: Snapshot) -> list[str]:
    shown = (
        each
        for each in snapshot.phases
        if each.count or each.name not in {COMMITTING, AWAITING_CACHE}
    )
    phases = [f"{one_line(each.name)} {each.count}" for each in shown]
    return [*phases, f"committed {snapshot.committed}", f"failed {snapshot.failed}"]


def _speed(snapshot: Snapshot, records: Records) -> list[str]:
    return [
        f"{format_number(snapshot.episodes_per_min, '.1f')} episodes/min",
        f"{format_number(records.turns_per_s, '.1f')} turns/s",
        f"{format_number(records.tokens_per_s, ',.0f')} tokens/s",
        f"{records.sampled_tokens:,} tokens sampled",
    ]


def _reward(snapshot: Snapshot) -> list[str]:
    return [
        f"mean {format_number(snapshot.mean_reward)}",
        f"resolved {snapshot.resolved}/{snapshot.committed}",
    ]


def _groups(records: Records) -> str:
    groups = records.groups
    if groups is None:
        return "their size is not known"
    total = "" if groups.total is None else f", {groups.total} in all"
    return f"{groups.with_signal} with signal of {groups.complete} complete{total}"


def _turn(records: Records) -> list[str]:
    hit = records.cache_hit
    return [
        *_quantiles(records.turns),
        f"prefix-cache hit {'–' if hit is None else f'{hit:.0%}'}",
    ]


def _time(records: Records) -> list[str]:
    engine, tools = records.engine, records.tools
    whole_s = engine.total_s + tools.total_s
    share = engine.total_s / whole_s if whole_s else 0.0
    bar = "█" * round(_SHARE_BAR * share)
    shares = f"engine {share:.0%} {bar:░<{_SHARE_BAR}} tools {1 - share:.0%}" if whole_s else "–"
    quantiles = (" ".join(_quantiles(each)) for each in (engine, tools))
    return [shares, *map(" ".join, zip(("engine", "tools"), quantiles, strict=True))]


def _failures(snapshot: Snapshot) -> tuple[Fact, ...]:
    return (Fact(_counted(snapshot.failures), "red" if snapshot.failures else ""),)


def _counted(counts: Sequence[Count]) -> str:
    named = (f"{one_line(each.name.replace('_', ' '))} {each.count}" for each in counts)
    return " · ".join(named) or "none"


def _quantiles(durations: Durations) -> list[str]:
    return [f"p50 {format_duration(durations.p50_s)}", f"p95 {format_duration(durations.p95_s)}"]


def _spark(durations: Durations) -> Fact:
    return Fact(sparkline(durations.histogram), "cyan")


def _bars(records: Records | None) -> tuple[Fact, ...]:
    return () if records is None else (Fact(sparkline(records.reward_bins), "green"),)


def _facts(*texts: str) -> tuple[Fact, ...]:
    return tuple(Fact(text) for text in texts if text)
