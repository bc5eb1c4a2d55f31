"""`stats`: what the episodes of a job did: turns, calls, tokens, rewards, times."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from swe_rollout.cli.job_address import JobLocation, find_target
from swe_rollout.cli.job_tables import write_failures, write_left_out
from swe_rollout.cli.options import Context, Form, Namespace, OutputFormat, StoredAddress
from swe_rollout.cli.output import say, write_data, write_lines, write_table
from swe_rollout.cli.stored_work import targeted
from swe_rollout.text.formatting import format_duration, format_masked, format_number

if TYPE_CHECKING:
    from swe_rollout.export.statistics import Distribution, JobStatistics, ToolStatistics
    from swe_rollout.store.damage import DamagedRecord
    from swe_rollout.types.durations import DurationHistogram


def stats(
    address: StoredAddress,
    namespace: Namespace = None,
    context: Context = None,
    *,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Count turns, calls by tool and status, errors, tokens, rewards and durations.

    All numbers are counted or measured; mean rewards exclude masked episodes.

    swe-rollout stats runs/demo

    swe-rollout stats runs/demo -o json
    """
    found, damaged = asyncio.run(_count(address, JobLocation(namespace, context)))
    if output.is_data:
        unread = [{"episode": str(each.episode), "why": each.why} for each in damaged]
        write_data({**found.to_dict(), "damaged": unread}, output)
    else:
        _write_tables(found, output)
    write_left_out(damaged)


async def _count(address: str, location: JobLocation) -> tuple[JobStatistics, list[DamagedRecord]]:
    from swe_rollout.export.statistics import JobStatistics
    from swe_rollout.store.damage import DamagedRecord

    target = await find_target(address, location)
    found, damaged = JobStatistics(), list[DamagedRecord]()
    async for trajectory in targeted(target.open_store(), target, damaged):
        found.add(trajectory)
    return found, damaged


def _write_tables(found: JobStatistics, output: OutputFormat) -> None:
    write_table(
        ["PER EPISODE", "MEAN#", "P50#", "P95#", "MAX#", "TOTAL#", "MIN#+", "STD#+"],
        [_quantity(name, each) for name, each in found.episodes.items()],
        output,
    )
    if output is OutputFormat.NAME:
        return
    write_lines([""])
    write_table(
        ["PER TURN", "MEAN#", "P50#", "P95#", "MAX#", "TOTAL#"],
        [_durations(name, each) for name, each in found.turns.items()],
    )
    write_lines([""])
    write_table(
        ["TOOL", "CALLS#", "NOT RUN#", "FAILED#", "TIMED OUT#", "CUT#", "TIME#", "LONGEST#"],
        [_tool(name, each) for name, each in found.tools.items()],
    )
    write_lines([""])
    rows = [
        *_counts("ended by", found.outcomes.stop_reasons),
        *_counts("failed part", found.owners),
        *_counts("failure", found.outcomes.failures),
        *_counts("verdict", found.verdicts),
        *_counts("generation", found.finish_reasons),
        *_counts("call", _statuses(found)),
    ]
    write_table(["WHAT", "OUTCOME", "COUNT#"], rows)
    write_failures(found.failure_groups.ranked(), output)
    _say_totals(found)


def _say_totals(found: JobStatistics) -> None:
    outcomes, reward, cached = found.outcomes, found.rewards, found.cached_share
    say(
        f"{outcomes.committed} episodes · {outcomes.resolved} resolved · "
        f"{format_masked(outcomes.masked, outcomes.committed)} masked · "
        f"mean reward {format_number(reward.mean)} ± {format_number(reward.deviation)}"
    )
    signal = f"{found.groups_with_signal} of {found.groups} graded groups have signal"
    say(f"{signal} · prefix-cache hit {format_number(cached, '.0%')}")


def _durations(name: str, durations: DurationHistogram) -> list[str]:
    longest_s = durations.longest_s if durations.count else None
    shown = [durations.mean_s, durations.quantile(0.5), durations.quantile(0.95), longest_s]
    return [
        f"{name.removesuffix('_s')} time",
        *map(format_duration, (*shown, durations.total_s)),
    ]


def _quantity(name: str, values: Distribution) -> list[str]:
    shown = [values.mean, values.quantile(0.5), values.quantile(0.95), values.quantile(1.0)]
    further = [values.quantile(0.0), values.deviation]
    every = (*shown, values.total, *further)
    if name.endswith("_s"):
        return [f"{name.removesuffix('_s')} time", *map(format_duration, every)]
    return [name.replace("_", " "), *(format_number(value, ",.0f") for value in every)]


def _tool(name: str, tool: ToolStatistics) -> list[str]:
    return [
        name,
        f"{tool.attempts:,}",
        f"{tool.attempts - tool.statuses['ok']:,}",
        f"{tool.failed:,}",
        f"{tool.timed_out:,}",
        f"{tool.truncated:,}",
        format_duration(tool.seconds),
        format_duration(tool.longest_s),
    ]


def _statuses(found: JobStatistics) -> Counter[str]:
    return sum((Counter(tool.statuses) for tool in found.tools.values()), Counter())


def _counts(what: str, counts: Mapping[str, int]) -> list[list[str]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [[what, name.replace("_", " "), f"{count:,}"] for name, count in ordered]
