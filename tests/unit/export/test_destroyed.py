"""An episode whose policy ended its own sandbox is a sample in every export. Issue 16, point 4."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from swe_rollout.export.atif import atif_format
from swe_rollout.export.chat import messages_format
from swe_rollout.export.files import text_format
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


async def test_no_export_calls_it_masked_or_failed(tmp_path: Path) -> None:
    await export_parquet(stream(DESTROYED), tmp_path / "parquet")
    (row,) = pq.read_table(tmp_path / "parquet").to_pylist()
    chat = json.loads(messages_format(reading()).part(DESTROYED).splitlines()[0])
    found = trace(DESTROYED, reading())
    ((_, data),) = atif_format(reading()).files(DESTROYED)
    extra = json.loads(data)["extra"]

    assert (row["stop_reason"], row["failure"]) == ("sandbox_destroyed", None)
    assert (row["masked"], row["group_masked"], row["reward"]) == (False, 0, 0.0)
    assert (chat["stop_reason"], chat["masked"]) == ("sandbox_destroyed", False)
    assert (found["stop_condition"], found.get("errors")) == ("sandbox_destroyed", None)
    assert (extra["stop_reason"], extra["failure"]) == ("sandbox_destroyed", None)
    assert extra["stop_evidence"] == EVIDENCE
    text = text_format(printable).part(DESTROYED).decode()
    assert f"sandbox_destroyed ({EVIDENCE}), reward 0" in text


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
