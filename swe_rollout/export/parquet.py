"""Export to Parquet: one row per branch of an episode, tokens in list columns.

Most episodes have one branch. All rows of an episode have its address as `rollout_id`, and its
reward; group statistics count episodes, however many rows they have.

Notebooks and trainers' loaders read it. Rows are written as they arrive, so a job larger than
memory can be exported; the file appears when it is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

import pyarrow as pa
import pyarrow.parquet as pq

from swe_rollout.errors import UsageError
from swe_rollout.export.files import complete_file
from swe_rollout.tokens.branch import Branch
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import without_secrets

_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive samples of one task, which a trainer compares."""

    name: str
    rewards: tuple[float, ...]
    """The rewards of the graded samples that are not masked."""
    masked: int
    """Number of samples excluded from means because something broke."""

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> Group:
        """Make the group of one task's samples."""
        first = trajectories[0].episode
        rewards = (t.reward.value for t in trajectories if t.reward is not None and not t.masked)
        masked = sum(t.masked for t in trajectories)
        return cls(first.group, tuple(rewards), masked)


@dataclass(frozen=True, slots=True)
class Row:
    """A branch, its episode, and the episode's group."""

    trajectory: Trajectory
    branch: Branch
    group: Group

    @property
    def turns(self) -> int:
        """Number of turns in this branch."""
        return sum(turn.branch == self.branch.index for turn in self.trajectory.turns)


def _origin(row: Row) -> str | None:
    """Return the origin of a fork, as `job/instance/sample@turn`."""
    fork = row.trajectory.forked_from
    return None if fork is None else f"{fork.episode}@{fork.turn}"


def _inherited(row: Row) -> int:
    """Count the tokens at the start of a row that come from the episode it was forked from."""
    fork = row.trajectory.forked_from
    return 0 if fork is None or row.branch.parent is not None else fork.tokens


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type, and the function that reads its values."""

    name: str
    type: pa.DataType
    value: Callable[[Row], object]


COLUMNS = (
    Column("episode", pa.string(), lambda r: str(r.trajectory.episode)),
    Column("job", pa.string(), lambda r: r.trajectory.episode.job),
    Column("instance_id", pa.string(), lambda r: r.trajectory.episode.instance),
    # Trainers' sessions use numbers beyond 32 bits.
    Column("sample", pa.int64(), lambda r: r.trajectory.episode.sample),
    Column("policy", pa.string(), lambda r: r.trajectory.policy),
    Column("token_ids", pa.list_(pa.int32()), lambda r: r.branch.token_ids),
    Column("loss_mask", pa.list_(pa.uint8()), lambda r: r.branch.loss_mask),
    Column("logprobs", pa.list_(pa.float32()), lambda r: r.branch.logprobs),
    Column("reward", pa.float64(), lambda r: r.trajectory.reward and r.trajectory.reward.value),
    Column("resolved", pa.bool_(), lambda r: r.trajectory.resolved),
    Column("masked", pa.bool_(), lambda r: r.trajectory.masked),
    Column("status", pa.string(), lambda r: r.trajectory.verdict and r.trajectory.verdict.status),
    Column("stop_reason", pa.string(), lambda r: r.trajectory.stop_reason),
    Column("failure", pa.string(), lambda r: r.trajectory.failure and r.trajectory.failure.type),
    Column("turns", pa.int32(), lambda r: r.turns),
    Column("patch", pa.large_string(), lambda r: r.trajectory.patch),
    Column("attempt", pa.int32(), lambda r: r.trajectory.attempt),
    Column("group", pa.string(), lambda r: r.group.name),
    Column("group_size", pa.int32(), lambda r: len(r.group.rewards)),
    Column("group_masked", pa.int32(), lambda r: r.group.masked),
    Column(
        "group_mean", pa.float64(), lambda r: fmean(r.group.rewards) if r.group.rewards else None
    ),
    Column(
        "group_std", pa.float64(), lambda r: pstdev(r.group.rewards) if r.group.rewards else None
    ),
    Column("spec_digest", pa.string(), lambda r: r.trajectory.spec_digest),
    Column("finished_at", pa.string(), lambda r: r.trajectory.finished_at),
    Column("rollout_id", pa.string(), lambda r: str(r.trajectory.episode)),
    Column("branch", pa.int32(), lambda r: r.branch.index),
    Column("parent_branch", pa.int32(), lambda r: r.branch.parent),
    Column("branch_kind", pa.string(), lambda r: r.branch.kind),
    Column("prompt_length", pa.int32(), lambda r: r.branch.prompt_length),
    Column("temperatures", pa.list_(pa.float32()), lambda r: r.branch.temperatures),
    Column("weight_versions", pa.list_(pa.string()), lambda r: r.branch.weight_versions),
    Column("forked_from", pa.string(), _origin),
    Column("inherited_tokens", pa.int32(), _inherited),
)
"""All columns, in order. `turns` counts those of the row's branch. `group_size`, `group_mean` and
`group_std` cover graded samples that are not masked."""

SCHEMA = pa.schema([pa.field(column.name, column.type) for column in COLUMNS])


async def export_parquet(trajectories: AsyncIterator[Trajectory], out: Path) -> int:
    """Write `out`, replacing it when complete, and return the number of episodes in it.

    Consecutive samples of a task form one group; a store reads them in that order.
    """
    episodes = 0
    async with complete_file(out) as file:
        with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
            async for batch in _batches(_with_tokens(trajectories)):
                await asyncio.to_thread(writer.write_table, _table(batch))
                episodes += sum(row.branch.parent is None for row in batch)
    return episodes


async def _batches(trajectories: AsyncIterator[Trajectory]) -> AsyncIterator[list[Row]]:
    """Batch whole groups to a good size for one write."""
    batch: list[Row] = []
    tokens = 0
    async for group in _groups(trajectories):
        found = Group.of(group)
        batch += [Row(each, branch, found) for each in group for branch in _rows_of(each)]
        tokens += sum(trajectory.token_count for trajectory in group)
        if tokens >= _BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


async def _with_tokens(trajectories: AsyncIterator[Trajectory]) -> AsyncIterator[Trajectory]:
    """Pass trajectories on; raise UsageError at one from a chat API, which has no tokens."""
    async for trajectory in trajectories:
        if trajectory.chat is not None:
            raise UsageError(
                f"{trajectory.episode} can't be exported for training: it has no tokens",
                why=f"{trajectory.policy} is a chat API, which returns text alone",
                fix="play the job with a policy that samples tokens, such as sglang; the messages "
                "are in the record's `chat`",
            )
        yield without_secrets(trajectory)


def _rows_of(trajectory: Trajectory) -> Iterator[Branch]:
    """Yield the main branch, and others in which something was sampled."""
    main, *others = trajectory.trained
    yield main
    yield from (branch for branch in others if branch.sampled)


async def _groups(trajectories: AsyncIterator[Trajectory]) -> AsyncIterator[list[Trajectory]]:
    group: list[Trajectory] = []
    task: tuple[str, str] | None = None
    async for trajectory in trajectories:
        previous, task = task, (trajectory.episode.job, trajectory.episode.instance)
        if group and task != previous:
            yield group
            group = []
        group.append(trajectory)
    if group:
        yield group


def _table(rows: Iterable[Row]) -> pa.Table:
    kept = tuple(rows)
    arrays = [pa.array([c.value(row) for row in kept], type=c.type) for c in COLUMNS]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
