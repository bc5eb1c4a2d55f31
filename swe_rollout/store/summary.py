"""Summarise a job: counts and means over its committed trajectories.

Masked episodes (those that failed) are counted separately and excluded from means. Damaged records
are listed, and count as not committed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import add
from typing import Final

import msgspec

from swe_rollout.spec.outcomes import EpisodeOutcome, OutcomeCounts
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.plan import Plan
from swe_rollout.store.refills import Refills
from swe_rollout.store.store import Listing, Store
from swe_rollout.text.formatting import format_number
from swe_rollout.text.notebook_html import ROWS, Table, card
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.failure_groups import FailureGroup, FailureGroups
from swe_rollout.types.trajectory import Trajectory

_ANY: Final = 2**31
"""More refills than any job has."""


@dataclass(frozen=True, slots=True)
class InstanceSummary:
    """One task's committed samples, which are the group that a trainer compares."""

    instance: str
    samples: int
    resolved: int
    mean_reward: float | None
    """Mean over the graded samples; None if there are none."""
    turns: int
    """Turns of all samples together."""
    tokens: int
    """Prompt and sampled tokens of all samples together."""
    masked: int


@dataclass(frozen=True, slots=True)
class JobSummary:
    """The counts and means of a job."""

    job: str
    episodes: int
    """Planned episodes."""
    committed: int
    """Episodes with a readable trajectory."""
    resolved: int
    unresolved: int
    """Episodes neither resolved nor masked."""
    masked: int
    mean_reward: float | None
    """Mean over the graded episodes; None if there are none."""
    stop_reasons: dict[str, int]
    failures: dict[str, int]
    """Failures by type."""
    by_instance: tuple[InstanceSummary, ...] = ()
    damaged: tuple[DamagedRecord, ...] = ()
    """Records that can't be read."""
    strays: tuple[str, ...] = ()
    """Objects among the episodes that are not trajectories."""
    tampered: int = 0
    """Unresolved episodes whose tests passed only because the patch tampers with them."""
    unproven: int = 0
    """Resolved episodes whose tests a forgery could pass, too."""
    replaced: int = 0
    """Masked episodes in whose place another sample of their task was committed."""
    quarantined: dict[str, int] = field(default_factory=dict)
    """Tasks left out because an audit found them bad, by the checks that they failed."""
    failure_groups: tuple[FailureGroup, ...] = ()
    """Failures by what they say, the most frequent first."""
    forked_from: str = ""
    """Where forked episodes start, as `job/instance/sample, turn n`; empty if not a fork."""

    def to_json(self) -> bytes:
        """Return the summary as one JSON object."""
        return msgspec.json.encode(self.to_dict())

    def to_dict(self) -> dict[str, object]:
        """Return the summary as plain values, with the instances under `instances`."""
        record: dict[str, object] = msgspec.to_builtins(self)
        record["masked_share"] = self.masked / self.committed if self.committed else 0.0
        record["instances"] = record.pop("by_instance")
        if not self.forked_from:
            del record["forked_from"]
        record["damaged"] = [
            {"episode": str(each.episode), "object": each.address, "why": each.why}
            for each in self.damaged
        ]
        return record

    def __repr__(self) -> str:
        mean = format_number(self.mean_reward)
        counts = f"{self.resolved} resolved, {self.masked} masked, mean reward {mean}"
        damaged = f", {len(self.damaged)} damaged" if self.damaged else ""
        done = f"{self.committed}/{self.episodes} committed"
        return f"<JobSummary {self.job}: {done}, {counts}{damaged}>"

    def _repr_html_(self) -> str:
        """Show the summary as a card in a notebook."""
        return self.card(f"Job {self.job}")

    def card(self, title: str, **facts: str) -> str:
        """Return the summary as a card, with additional facts at the end."""
        shown = {
            "episodes": f"{self.committed:,} of {self.episodes:,} committed",
            "resolved": f"{self.resolved:,}",
            "tampered": f"{self.tampered:,}" if self.tampered else "",
            "unproven": f"{self.unproven:,} of those resolved" if self.unproven else "",
            "mean reward": format_number(self.mean_reward),
            "ended by": _counted(self.stop_reasons),
            "masked": f"{self.masked:,}: {_counted(self.failures)}" if self.masked else "",
            "damaged": str(len(self.damaged) or ""),
        }
        rows = [
            [
                each.instance,
                str(each.samples),
                str(each.resolved),
                format_number(each.mean_reward),
                str(each.masked),
                f"{each.turns / max(each.samples, 1):.1f}",
            ]
            for each in self.by_instance[:ROWS]
        ]
        columns = ("instance", "samples", "resolved", "mean reward", "masked", "turns each")
        table = Table(columns, rows, total=len(self.by_instance))
        return card(title, shown | facts, table=table)


@dataclass(slots=True)
class _Group:
    """The sums over the samples of one task."""

    rewards: array[float] = field(default_factory=lambda: array("d"))
    rewarded: array[int] = field(default_factory=lambda: array("q"))
    """The samples that have a reward, in the order of `rewards`."""
    samples: int = 0
    resolved: int = 0
    masked: int = 0
    turns: int = 0
    tokens: int = 0

    def add(self, trajectory: Trajectory, outcome: EpisodeOutcome) -> None:
        """Count a sample."""
        self.samples += 1
        self.resolved += outcome.resolved and not outcome.masked
        self.masked += outcome.masked
        self.turns += len(trajectory.turns)
        self.tokens += trajectory.token_count
        if outcome.reward is not None:
            self.rewards.append(outcome.reward)
            self.rewarded.append(trajectory.episode.sample)

    def in_order(self) -> Iterable[float]:
        """Return the rewards in the order of samples, on which a floating-point sum depends."""
        return (reward for _, reward in sorted(zip(self.rewarded, self.rewards, strict=True)))

    def summary(self, name: str) -> InstanceSummary:
        """Return the sums."""
        mean = _sum(self.in_order()) / len(self.rewards) if self.rewards else None
        counts = self.samples, self.resolved, mean, self.turns, self.tokens, self.masked
        return InstanceSummary(name, *counts)


class JobTally:
    """Counts a job's stored episodes. Each record is read once, because none ever changes."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = store
        self._job = job
        self._listing = Listing(frozenset(), ())
        self._passed: set[EpisodeId] = set()
        """Episodes that were damaged or skipped."""
        self._damaged: list[DamagedRecord] = []
        self._counted: set[EpisodeId] = set()
        self._retryable: set[EpisodeId] = set()
        """Those that failed, and whose sample another one may replace."""
        self._groups: dict[str, _Group] = {}
        self._total = OutcomeCounts()
        self._failures = FailureGroups()

    @property
    def episodes(self) -> AbstractSet[EpisodeId]:
        """The episodes counted so far."""
        return self._counted

    @property
    def listed(self) -> frozenset[EpisodeId]:
        """The episodes in the store at the last call, including unreadable ones."""
        return self._listing.episodes

    @property
    def damaged(self) -> Sequence[DamagedRecord]:
        """The records that can't be read, so far."""
        return self._damaged

    async def skip_listed(self) -> None:
        """Skip the trajectories now in the store."""
        self._listing = await self._store.listing(self._job)
        self._passed |= self._listing.episodes

    async def read_new(self) -> AsyncIterator[Trajectory]:
        """Count and yield the trajectories committed since the last call.

        A cancelled call loses none: the next one yields the rest.
        """
        self._listing = await self._store.listing(self._job)
        seen, listed = (self._counted, self._passed), self._listing.episodes
        new = (each for each in listed if not any(each in some for some in seen))
        async for record in self._store.records(new):
            if isinstance(record, DamagedRecord):
                self._passed.add(record.episode)
                self._damaged.append(record)
            else:
                self._add(record)
                yield record

    def _add(self, record: Trajectory) -> None:
        episode, outcome = record.episode, record.outcome
        self._counted.add(episode)
        self._total.add(outcome)
        self._groups.setdefault(episode.instance, _Group()).add(record, outcome)
        if record.failure is not None:
            self._failures.add(episode, record.failure)
            if record.failure.retryable:
                self._retryable.add(episode)

    async def summary(self) -> JobSummary:
        """Count new episodes and summarise the job. Raises UsageError if there is no such job."""
        plan = await self._store.plan(self._job)
        async for _ in self.read_new():
            pass
        return self.counted(plan)

    def counted(self, plan: Plan) -> JobSummary:
        """Summarise the episodes counted so far."""
        groups, total = sorted(self._groups.items()), self._total
        total.reward_sum = _sum(chain.from_iterable(group.in_order() for _, group in groups))
        return JobSummary(
            job=self._job,
            episodes=plan.episodes + plan.unplanned(self._listing.episodes),
            committed=total.committed,
            resolved=total.resolved,
            unresolved=total.unresolved,
            tampered=total.tampered,
            unproven=total.unproven,
            masked=total.masked,
            mean_reward=total.mean_reward,
            stop_reasons=dict(sorted(total.stop_reasons.items())),
            failures=dict(sorted(total.failures.items())),
            by_instance=tuple(group.summary(name) for name, group in groups),
            damaged=tuple(self._damaged),
            replaced=len(self._replacements(plan, _ANY) & self._listing.episodes),
            quarantined=dict(sorted(Counter(plan.quarantined.values()).items())),
            strays=self._listing.strays,
            failure_groups=self._failures.ranked(),
            forked_from=plan.forked_from,
        )

    async def left(self, plan: Plan) -> int:
        """Count the episodes not committed yet, with those that are to replace failed ones."""
        owed = self._replacements(plan, await self._store.refills(self._job))
        return plan.missing(self.listed) + len(owed - self.listed)

    def _replacements(self, plan: Plan, refills: int) -> set[EpisodeId]:
        """Return the samples that follow the failed ones, if each may be replaced so often."""
        rule = Refills({each.id: each.samples for each in plan.instances}, refills)
        found = map(rule.following, self._retryable)
        return {each for each in found if each is not None}


def _counted(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {count:,}" for name, count in counts.items())


async def summarise(store: Store, job: str) -> JobSummary:
    """Summarise the job's committed trajectories. Raises UsageError if there is no such job."""
    return await JobTally(store, job).summary()


def _sum(rewards: Iterable[float]) -> float:
    """Add up rewards one by one, as `OutcomeCounts` does, whatever `sum` does about rounding."""
    return reduce(add, rewards, 0.0)
