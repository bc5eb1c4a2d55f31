"""The Parquet export: one row for each branch, read back with pyarrow alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swe_rollout.errors import SandboxError, UsageError
from swe_rollout.export import parquet
from swe_rollout.export.parquet import COLUMNS, export_parquet
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.types.episode import EpisodeId, Failure, StopReason
from swe_rollout.types.trajectory import ChatRecord, Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm, TestReport, Verdict, VerdictStatus
from unit.export.export_parts import forked, stream, trajectory

PLAIN = replace(
    trajectory(),
    token_ids=(1, 2, 3),
    loss_mask=(0, 1, 1),
    logprobs=(None, -0.5, -0.25),
    segments=(),
    turns=(),
    stop_reason=StopReason.SUBMITTED,
    patch="diff\r\né",
    verdict=None,
    reward=None,
    token_path=None,
)


def graded(instance: str, sample: int, status: VerdictStatus) -> Trajectory:
    verdict = Verdict(status, TestReport({}, {}))
    episode = EpisodeId("demo", instance, sample)
    return replace(
        PLAIN,
        episode=episode,
        verdict=verdict,
        reward=Reward((RewardTerm("resolved", float(verdict.resolved)),)),
    )


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_row_holds_the_tokens_as_lists_with_nulls_where_nothing_was_sampled(
    tmp_path: Path,
) -> None:
    out = tmp_path / "new" / "demo.parquet"
    assert await export_parquet(stream(PLAIN), out) == 1
    table = pq.read_table(out)
    assert table.schema.field("token_ids").type == pa.list_(pa.int32())
    assert table.schema.field("loss_mask").type == pa.list_(pa.uint8())
    assert table.schema.field("logprobs").type == pa.list_(pa.float32())
    (row,) = table.to_pylist()
    assert row["episode"] == "demo/a/0"
    assert (row["token_ids"], row["loss_mask"]) == ([1, 2, 3], [0, 1, 1])
    assert row["logprobs"] == [None, -0.5, -0.25]
    assert row["patch"] == "diff\r\né"
    assert (row["reward"], row["stop_reason"], row["failure"]) == (None, "submitted", None)


async def test_groups_count_graded_samples_that_are_not_masked(tmp_path: Path) -> None:
    masked = replace(
        graded("a", 3, VerdictStatus.RESOLVED), failure=Failure.of(SandboxError("lost"))
    )
    rows = stream(
        graded("a", 0, VerdictStatus.RESOLVED),
        graded("a", 1, VerdictStatus.UNRESOLVED),
        replace(PLAIN, episode=EpisodeId("demo", "a", 2)),
        masked,
        graded("b", 0, VerdictStatus.EMPTY_PATCH),
        replace(PLAIN, episode=EpisodeId("demo", "c", 0)),
    )
    await export_parquet(rows, tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert table["group"].to_pylist() == ["demo/a"] * 4 + ["demo/b", "demo/c"]
    assert table["group_size"].to_pylist() == [2] * 4 + [1, 0]
    assert table["group_masked"].to_pylist() == [1] * 4 + [0, 0]
    assert table["group_mean"].to_pylist() == [0.5] * 4 + [0.0, None]
    assert table["group_std"].to_pylist() == [0.5] * 4 + [0.0, None]
    assert table["masked"].to_pylist() == [False, False, False, True, False, False]
    assert table["failure"].to_pylist()[3] == "SandboxError"
    assert table["status"].to_pylist()[4] == "empty_patch"
    assert table["resolved"].to_pylist()[:2] == [True, False]


async def test_many_batches_make_one_file_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_TOKENS", 4)
    rows = [replace(PLAIN, episode=EpisodeId("demo", f"i{n}", 0)) for n in range(7)]
    assert await export_parquet(stream(*rows), tmp_path / "x.parquet") == 7
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups > 1
    written = pq.read_table(tmp_path / "x.parquet")["instance_id"].to_pylist()
    assert written == [f"i{n}" for n in range(7)]


async def test_a_record_without_tokens_is_refused(tmp_path: Path) -> None:
    talked = replace(PLAIN, token_ids=(), chat=ChatRecord(("m",), ()), policy="openai:m")

    with pytest.raises(UsageError, match="demo/a/0 can't be exported for training") as caught:
        await export_parquet(stream(PLAIN, talked), tmp_path / "out.parquet")

    assert "openai:m is a chat API" in caught.value.why
    assert await asyncio.to_thread(os.listdir, tmp_path) == []


async def test_a_job_without_episodes_is_an_empty_table(tmp_path: Path) -> None:
    assert await export_parquet(stream(), tmp_path / "x.parquet") == 0
    assert pq.read_table(tmp_path / "x.parquet").column_names == [c.name for c in COLUMNS]


async def test_an_export_that_breaks_leaves_the_old_file_and_no_half_one(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[Trajectory]:
        yield PLAIN
        raise SandboxError("gone")

    out = tmp_path / "x.parquet"
    await export_parquet(stream(PLAIN), out)
    with pytest.raises(SandboxError):
        await export_parquet(broken(), out)
    assert names(tmp_path) == ["x.parquet"]
    assert pq.read_table(out).num_rows == 1


def branch(index: int, parent: int, *ids: int, sampled: int) -> Branch:
    return Branch(
        index=index,
        kind=BranchKind.SUB_AGENT,
        parent=parent,
        parent_length=1,
        token_ids=ids,
        loss_mask=(0,) * (len(ids) - sampled) + (1,) * sampled,
        logprobs=(None,) * (len(ids) - sampled) + (-0.5,) * sampled,
        segments=(),
    )


async def test_each_branch_is_a_row_and_statistics_count_episodes(tmp_path: Path) -> None:
    first = replace(
        graded("a", 0, VerdictStatus.RESOLVED),
        branches=(branch(1, 0, 7, 8, sampled=1), branch(2, 1, 9, sampled=0)),
    )
    out = tmp_path / "demo.parquet"

    assert await export_parquet(stream(first, graded("a", 1, VerdictStatus.UNRESOLVED)), out) == 2

    rows = pq.read_table(out).to_pylist()
    assert [(row["rollout_id"], row["branch"], row["parent_branch"]) for row in rows] == [
        ("demo/a/0", 0, None),
        ("demo/a/0", 1, 0),
        ("demo/a/1", 0, None),
    ]
    assert [row["token_ids"] for row in rows] == [[1, 2, 3], [7, 8], [1, 2, 3]]
    assert [row["loss_mask"] for row in rows][1] == [0, 1]
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0]
    assert {(row["group_size"], row["group_mean"]) for row in rows} == {(2, 0.5)}
    assert [row["branch_kind"] for row in rows] == ["main", "sub_agent", "main"]


async def test_a_fork_says_so_and_its_inherited_tokens_have_the_mask_0(tmp_path: Path) -> None:
    out = tmp_path / "demo.parquet"
    await export_parquet(stream(forked(), forked(trained=True), PLAIN), out)
    fork, trained, other = pq.read_table(out).to_pylist()
    length = fork["inherited_tokens"]
    assert fork["forked_from"] == trained["forked_from"] == "demo/a/0@1"
    assert not any(fork["loss_mask"][:length])
    assert any(trained["loss_mask"][:length])
    assert fork["loss_mask"][length:] == trained["loss_mask"][length:]
    assert fork["token_ids"] == trained["token_ids"]
    assert (other["forked_from"], other["inherited_tokens"]) == (None, 0)


async def test_a_group_larger_than_a_batch_is_written_in_parts_that_know_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_MOST_TOKENS", 2 * PLAIN.token_count)
    statuses = (VerdictStatus.RESOLVED, VerdictStatus.UNRESOLVED)
    rows = [graded("a", sample, statuses[sample % 2]) for sample in range(5)]
    assert await export_parquet(stream(*rows), tmp_path / "x") == 5
    file = pq.ParquetFile(tmp_path / "x")
    groups = [file.read_row_group(number).to_pylist() for number in range(file.num_row_groups)]
    assert [[row["sample"] for row in group] for group in groups] == [[0, 1], [2, 3], [4]]
    assert {row["group_size"] for group in groups for row in group} == {5}
    assert {row["group_mean"] for group in groups for row in group} == {0.6}
