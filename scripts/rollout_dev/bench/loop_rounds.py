"""Rounds of `bench loop`: a batch of episodes of one client after the other, repeated."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rollout_dev.bench.loop_clients import Client


@dataclass(frozen=True, slots=True)
class Entrant:
    """A subject: its name, and a factory of its client for a server's address."""

    name: str
    client: Callable[[str], Client]


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that run at the same time."""

    url: str
    episodes: int
    turns: int
    """Tool turns of each episode."""


@dataclass(slots=True)
class Samples:
    """The samples of one subject, by round."""

    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """CPU time of the client's process per turn."""

    @property
    def turns_per_s(self) -> float:
        """Turns per second of the median round."""
        return statistics.median(self.per_s)

    def ratio_to(self, other: Samples) -> float:
        """Median over rounds of the ratio to another subject, which ran in the same minute."""
        pairs = zip(self.per_s, other.per_s, strict=True)
        return statistics.median(own / theirs for own, theirs in pairs)

    @property
    def client_cpu_ms(self) -> float:
        """CPU time per turn of the median round."""
        return statistics.median(self.cpu_ms)


def play(entrant: Entrant, batch: Batch, samples: Samples) -> None:
    """Play one round."""
    gc.collect()
    asyncio.run(_play(entrant, batch, samples))


async def _play(entrant: Entrant, batch: Batch, samples: Samples) -> None:
    client = entrant.client(batch.url)
    await client.open()
    try:
        began, cpu = time.perf_counter(), time.process_time()
        played = await asyncio.gather(
            *(client.play(number, batch.turns) for number in range(batch.episodes))
        )
        took, used = time.perf_counter() - began, time.process_time() - cpu
    finally:
        await client.aclose()
    if set(played) != {batch.turns + 1}:
        raise RuntimeError(f"{entrant.name} had {sorted(set(played))} turns, not {batch.turns + 1}")
    samples.per_s.append(sum(played) / took)
    samples.cpu_ms.append(1e3 * used / sum(played))
