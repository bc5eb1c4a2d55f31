"""Export to Parquet: one row per branch of an episode, tokens in list columns.

Most episodes have one branch. All rows of an episode have its address as `rollout_id`, and its
reward; group statistics count episodes, however many rows they have.

Notebooks and trainers' loaders read it. Rows are written as they arrive, into a file of parts from
which the output is made, so a job or a group larger than memory can be exported.
"""

from __future__ import annotations

import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from swe_rollout.errors import UsageError
from swe_rollout.export.files import FileFormat, export
from swe_rollout.tokens.branch import Branch
from swe_rollout.types.trajectory import Trajectory

_BATCH_TOKENS = 1 << 20
"""A row group ends with the group of samples that reaches this."""
_MOST_TOKENS = 1 << 22
"""It ends within a group of samples that reaches this."""
_LENGTH = struct.Struct("<I")


class Group(msgspec.Struct):
    """Consecutive samples of one task, which a trainer compares."""

    name: str
    rewards: list[float] = []
    """The rewards of the graded samples that are not masked."""
    masked: int = 0
    """Number of samples excluded from means because something broke."""
    samples: int = 0

    def values(self) -> dict[str, object]:
        """Return the values of the columns about the group."""
        known = self.rewards
        return {
            "group_size": len(known),
            "group_masked": self.masked,
            "group_mean": fmean(known) if known else None,
            "group_std": pstdev(known) if known else None,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A branch and its episode."""

    trajectory: Trajectory
    branch: Branch

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
    value: Callable[[Row], object] | None = None
    """None for what all samples of a group say together."""


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
    Column("group", pa.string(), lambda r: r.trajectory.episode.group),
    Column("group_size", pa.int32()),
    Column("group_masked", pa.int32()),
    Column("group_mean", pa.float64()),
    Column("group_std", pa.float64()),
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


_OWN = tuple(column for column in COLUMNS if column.value is not None)
_OWN_SCHEMA = pa.schema([pa.field(column.name, column.type) for column in _OWN])


class _Sample(msgspec.Struct, array_like=True):
    """What precedes the rows of an episode among the parts."""

    group: str
    reward: float | None
    """None if it does not count."""
    masked: bool
    tokens: int
    size: int
    """The bytes of its rows, an Arrow record batch that lacks the columns about the group."""


async def export_parquet(trajectories: AsyncIterator[Trajectory], out: Path) -> int:
    """Write `out`, replacing it when complete, and return the number of episodes in it.

    Consecutive samples of a task form one group; a store reads them in that order.
    """
    return (await export(trajectories, out, parquet_format())).episodes


def parquet_format() -> FileFormat:
    """Return the format. An episode over a chat API is a UsageError: it has no tokens."""
    return FileFormat(_part, finish=_finish)


def _part(trajectory: Trajectory) -> bytes:
    if trajectory.chat is not None:
        raise UsageError(
            f"{trajectory.episode} can't be exported for training: it has no tokens",
            why=f"{trajectory.policy} is a chat API, which returns text alone",
            fix="play the job with a policy that samples tokens, such as sglang; the messages "
            "are in the record's `chat`",
        )
    rows = [Row(trajectory, branch) for branch in _branches(trajectory)]
    arrays = [pa.array([c.value(r) for r in rows], type=c.type) for c in _OWN if c.value]
    data = pa.record_batch(arrays, schema=_OWN_SCHEMA).serialize().to_pybytes()
    reward, masked = trajectory.reward, trajectory.masked
    sample = _Sample(
        trajectory.episode.group,
        None if reward is None or masked else reward.value,
        masked,
        trajectory.token_count,
        len(data),
    )
    head = msgspec.msgpack.encode(sample)
    return _LENGTH.pack(len(head)) + head + data


def _branches(trajectory: Trajectory) -> Iterator[Branch]:
    """Yield the main branch, and others in which something was sampled."""
    main, *others = trajectory.trained
    yield main
    yield from (branch for branch in others if branch.sampled)


def _finish(parts: Path, out: Path) -> None:
    """Write all rows with what is known of their groups now.

    A file is read twice side by side: a group may be larger than memory, and its first row says
    how many follow.
    """
    with (
        parts.open("rb") as ahead,
        parts.open("rb") as file,
        pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer,
    ):
        samples = _samples(file)
        batches, tokens = list[pa.RecordBatch](), 0
        for group in _groups(ahead):
            values = group.values()
            for last in range(group.samples - 1, -1, -1):
                sample = next(samples)
                batches.append(_whole(file.read(sample.size), values))
                tokens += sample.tokens
                if tokens >= (_MOST_TOKENS if last else _BATCH_TOKENS):
                    writer.write_table(_table(batches))
                    batches, tokens = [], 0
        if batches:
            writer.write_table(_table(batches))


def _groups(file: BinaryIO) -> Iterator[Group]:
    """Yield the groups of the file, whose rows are passed over."""
    group: Group | None = None
    for sample in _samples(file):
        file.seek(sample.size, os.SEEK_CUR)
        if group is None or group.name != sample.group:
            if group is not None:
                yield group
            group = Group(sample.group)
        group.samples += 1
        group.masked += sample.masked
        if sample.reward is not None:
            group.rewards.append(sample.reward)
    if group is not None:
        yield group


def _samples(file: BinaryIO) -> Iterator[_Sample]:
    """Yield each episode of the file, whose rows are to be read or passed over."""
    while head := file.read(_LENGTH.size):
        yield msgspec.msgpack.decode(file.read(*_LENGTH.unpack(head)), type=_Sample)


def _whole(data: bytes, values: Mapping[str, object]) -> pa.RecordBatch:
    own = pa.ipc.read_record_batch(pa.py_buffer(data), _OWN_SCHEMA)
    arrays = [
        own.column(column.name)
        if column.value
        else pa.array([values[column.name]] * own.num_rows, type=column.type)
        for column in COLUMNS
    ]
    return pa.record_batch(arrays, schema=SCHEMA)


def _table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=SCHEMA).combine_chunks()
