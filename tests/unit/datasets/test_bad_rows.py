"""A job's tasks without those in quarantine: which are left out, what is said, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_rollout.datasets.bad_rows import Quarantine
from swe_rollout.datasets.base import LoadedDataset, load
from swe_rollout.errors import DatasetError
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.model import Use
from swe_rollout.types.bad_rows import BadRow, Finding
from swe_rollout.types.instance import Instance

TASKS = tuple(
    Instance(instance_id=f"task-{n}", problem_statement="fix it", image="image:1") for n in range(4)
)


def source() -> tuple[Instance, ...]:
    return TASKS


def bad(task: Instance, *checks: str, digest: str = "") -> bytes:
    findings = tuple(Finding(check, "it lies") for check in checks)
    return BadRow(task.instance_id, digest or task.digest, findings).to_line()


async def loaded(folder: Path, *lines: bytes, **fields: object) -> LoadedDataset:
    (folder / "quarantine.jsonl").write_bytes(b"".join(lines))
    dataset = Dataset(
        source=Use(use=f"{__name__}:source"),
        **{"quarantine": "quarantine.jsonl", **fields},
    )
    return await load(dataset, base_dir=folder, on_progress=lambda _: None)


async def test_rows_in_quarantine_are_left_out_with_their_reason(tmp_path: Path) -> None:
    found = await loaded(tmp_path, bad(TASKS[1], "gold"), bad(TASKS[3], "base", "skip"))
    assert found.instances == (TASKS[0], TASKS[2])
    assert found.quarantined == {"task-1": "gold", "task-3": "base, skip"}
    (note,) = found.notes
    assert "leaves out 2 of 4 tasks (1 gold, 1 base, skip): task-1, task-3" in note


async def test_a_row_that_has_changed_is_not_hidden_by_an_old_finding(tmp_path: Path) -> None:
    found = await loaded(tmp_path, bad(TASKS[1], "gold", digest="000000000000"))
    assert found.instances == TASKS
    assert found.quarantined == {}
    assert "1 tasks have changed since quarantine.jsonl was written" in found.notes[0]


async def test_a_slice_names_the_same_tasks_with_and_without_quarantine(tmp_path: Path) -> None:
    found = await loaded(tmp_path, bad(TASKS[0], "gold"), slice="0:2")
    assert found.instances == (TASKS[1],)


async def test_findings_about_other_tasks_change_nothing(tmp_path: Path) -> None:
    found = await loaded(tmp_path, bad(TASKS[3], "gold"), b"\n", exclude=("task-3",))
    assert (found.instances, found.quarantined, found.notes) == (TASKS[:3], {}, ())


async def test_an_empty_file_leaves_out_nothing(tmp_path: Path) -> None:
    assert (await loaded(tmp_path)).instances == TASKS


async def test_a_file_that_is_not_there_is_named_with_its_field(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        await loaded(tmp_path, quarantine="other.jsonl")
    (problem,) = caught.value.problems
    assert (problem.place, problem.field) == ("dataset.quarantine", "other.jsonl")


async def test_each_damaged_line_is_named(tmp_path: Path) -> None:
    newer = json.dumps({**json.loads(bad(TASKS[0], "gold")), "schema": 9}).encode() + b"\n"
    with pytest.raises(DatasetError) as caught:
        await loaded(tmp_path, bad(TASKS[0], "gold"), b"{\n", newer, bad(TASKS[1], "gold")[:40])
    places = [problem.place for problem in caught.value.problems]
    assert places == [f"quarantine.jsonl:{line}" for line in (2, 3, 4)]
    assert "schema 1, found 9" in caught.value.problems[1].message


async def test_a_quarantine_of_every_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no task is left"):
        await loaded(tmp_path, *(bad(each, "base") for each in TASKS))


def test_a_large_file_of_another_kind_is_refused_by_its_first_lines() -> None:
    with pytest.raises(DatasetError) as caught:
        Quarantine.of(b"{}\n" * 100_000, "rows.jsonl")
    assert len(caught.value.problems) == 20
