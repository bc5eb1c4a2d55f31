"""An episode whose policy ended its own sandbox is a sample in every export. Issue 16, point 4."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from swe_rollout.export.atif import atif_format
from swe_rollout.export.chat import messages_format
from swe_rollout.export.files import export, text_format
from swe_rollout.export.parquet import export_parquet
from swe_rollout.export.verifiers import trace
from swe_rollout.live.progress import outcome_name
from swe_rollout.text.escaping import printable
from swe_rollout.training.samples import SampleStatus, training_samples
from swe_rollout.types.episode import StopReason
from swe_rollout.types.verdict import Reward, RewardTerm
from swe_rollout.viewer.data import row_of
from unit.export.export_parts import reading, stream, trajectory

EVIDENCE = "pod p was killed for exceeding its memory: OOMKilled, exit code 137"
DESTROYED = replace(
    trajectory("a"),
    stop_reason=StopReason.SANDBOX_DESTROYED,
    stop_evidence=EVIDENCE,
    reward=Reward((RewardTerm("resolved", 0.0),)),
)


def test_trainers_are_given_it_with_its_reward_and_every_sampled_token() -> None:
    (sample,) = training_samples(DESTROYED)
    assert sample.status is SampleStatus.COMPLETED
    assert sample.reward == 0.0
    assert sample.is_trainable
    assert sum(sample.loss_mask) == DESTROYED.sampled_count


async def test_parquet_has_a_row_that_is_not_masked(tmp_path: Path) -> None:
    await export_parquet(stream(DESTROYED), tmp_path / "x")
    (row,) = pq.read_table(tmp_path / "x").to_pylist()
    assert (row["stop_reason"], row["failure"]) == ("sandbox_destroyed", None)
    assert (row["masked"], row["group_masked"], row["reward"]) == (False, 0, 0.0)


async def test_the_text_says_why(tmp_path: Path) -> None:
    await export(stream(DESTROYED), tmp_path / "x", text_format(printable))
    assert f"sandbox_destroyed ({EVIDENCE}), reward 0" in (tmp_path / "x").read_text()


async def test_messages_are_not_masked(tmp_path: Path) -> None:
    await export(stream(DESTROYED), tmp_path / "x", messages_format(reading()))
    line = json.loads((tmp_path / "x").read_text().splitlines()[0])
    found: dict[str, Any] = line.get("metadata", line)
    assert (found["stop_reason"], found["masked"]) == ("sandbox_destroyed", False)


def test_a_trace_is_no_error() -> None:
    found = trace(DESTROYED, reading())
    assert found["stop_condition"] == "sandbox_destroyed"
    assert not found.get("errors")


def test_a_document_has_the_evidence() -> None:
    ((_, data),) = atif_format(reading()).files(DESTROYED)
    extra = json.loads(data)["extra"]
    assert (extra["stop_reason"], extra["failure"]) == ("sandbox_destroyed", None)
    assert extra["stop_evidence"] == EVIDENCE


def test_counters_and_the_viewer_show_a_stop_reason() -> None:
    assert DESTROYED.outcome.stop_reason == "sandbox_destroyed"
    assert not DESTROYED.outcome.masked
    row = row_of(DESTROYED, None)
    assert (row["ended"], row["owner"], row["failure"]) == ("sandbox_destroyed", None, None)
    assert outcome_name(DESTROYED) == "sandbox_destroyed"


@pytest.mark.parametrize("reason", list(StopReason))
def test_each_stop_reason_is_documented(reason: StopReason) -> None:
    page = Path(__file__).parents[3] / "docs/reference/trajectory.md"
    assert f"`{reason.value}`" in page.read_text()
