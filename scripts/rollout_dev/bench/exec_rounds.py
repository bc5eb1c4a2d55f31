"""Rounds of `bench exec`: one batch of each subject after the other, repeated; then figures.

Times are wall time seen by the client, and CPU time of the client's own process (of its children,
for a command-line client).
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rollout_dev.exec_clients.base import Runner

TRUE = ("true",)
LONG_S = 8.0
"""A transfer that took longer is not repeated."""
_P99 = 0.99


@dataclass(frozen=True, slots=True)
class Subject:
    """One client, bound to each of some pods."""

    name: str
    runners: Sequence[Runner]
    batch: int
    """Commands in a row in each turn: many where they are quick."""
    per_pod: int
    """Commands for each pod when all are busy."""


@dataclass(slots=True)
class Samples:
    """The samples of one subject."""

    latencies_s: list[list[float]] = field(default_factory=list)
    """Seconds of each command, by turn."""
    cpu_s: list[float] = field(default_factory=list)
    """CPU seconds per command, by turn."""
    per_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Commands per second, by number of pods, by round."""
    bulk_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of whole transfers, by kind of transfer, by round."""
    failed: str = ""
    """The error that ended its measurement; empty while there is none."""

    def figures(self) -> dict[str, float]:
        """Return medians of the rounds; p99 is of all commands together."""
        every = sorted(latency for batch in self.latencies_s for latency in batch)
        found: dict[str, float] = {}
        if every:
            found["p50_ms"] = round(self.p50_s * 1e3, 3)
            found["p99_ms"] = round(every[min(len(every) - 1, int(_P99 * len(every)))] * 1e3, 3)
            found["client_cpu_ms"] = round(statistics.median(self.cpu_s) * 1e3, 4)
        for pods, rates in self.per_s.items():
            found[f"pods_{pods}_per_s"] = round(statistics.median(rates), 1)
        for what, times in self.bulk_s.items():
            if not times:
                continue
            found[f"{what}_ms"] = round(statistics.median(times) * 1e3, 1)
        return found

    @property
    def p50_s(self) -> float:
        """Median of the turns' medians."""
        return statistics.median(statistics.median(batch) for batch in self.latencies_s)


@dataclass(frozen=True, slots=True)
class Bulk:
    """A command with much input or output."""

    what: str
    argv: tuple[str, ...]
    stdin: bytes = b""
    expected: int = 0
    """Bytes of stdout; fewer are a failure."""


async def latency_round(subject: Subject, samples: Samples) -> None:
    """Run one command after the other in one pod."""
    runner = subject.runners[0]
    cpu = _cpu_s()
    batch = [await timed(lambda: runner.run(TRUE)) for _ in range(subject.batch)]
    samples.cpu_s.append((_cpu_s() - cpu) / subject.batch)
    samples.latencies_s.append(batch)


async def busy_round(subject: Subject, samples: Samples, *, pods: int) -> None:
    """Run commands in all of `pods` at once, one after the other in each."""

    async def keep_busy(runner: Runner) -> None:
        for _ in range(subject.per_pod):
            await runner.run(TRUE)

    chosen = subject.runners[:pods]
    took_s = await timed(lambda: asyncio.gather(*map(keep_busy, chosen)))
    samples.per_s[pods].append(len(chosen) * subject.per_pod / took_s)


async def bulk_round(subject: Subject, samples: Samples, *, bulk: Bulk) -> None:
    """Run one transfer, unless the client cannot or an earlier one took too long."""
    if max(samples.bulk_s[bulk.what], default=0.0) > LONG_S:
        return
    started = time.monotonic()
    try:
        found = await subject.runners[0].run(bulk.argv, stdin=bulk.stdin)
    except NotImplementedError:
        return
    if len(found.stdout) < bulk.expected:
        raise RuntimeError(f"{bulk.what}: {len(found.stdout)} of {bulk.expected} bytes arrived")
    samples.bulk_s[bulk.what].append(time.monotonic() - started)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Run `work` and return its seconds."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
