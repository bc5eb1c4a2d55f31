"""RolloutJob: a job from a file or from rows, and a run in this process."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from swe_rollout import RolloutJob
from swe_rollout.errors import DatasetError, SpecError
from unit.launcher.row_parts import SPEC, row


def test_a_job_from_a_file_takes_overrides_and_leaves_unset_fields_unset(
    job_file: Path,
) -> None:
    job = RolloutJob.from_yaml(job_file, overrides=["spec.samples=7", "metadata.name=mine"])

    written = job.model_dump(by_alias=True, exclude_unset=True)
    assert (job.spec.samples, job.metadata.name) == (7, "mine")
    assert "retry" not in written["spec"]
    with pytest.raises(SpecError):
        RolloutJob.from_yaml(job_file, overrides=["spec.samples=none"])


def test_rows_become_the_dataset_of_the_job() -> None:
    rows = [row(), row("demo__demo-2")]

    job = RolloutJob.from_rows(rows, name="mine", spec=SPEC)
    same = RolloutJob.from_rows(rows, name="mine", spec=SPEC)
    other = job.with_rows(rows[:1])

    assert job.spec.dataset.swebench is not None
    uri = job.spec.dataset.swebench.uri
    assert uri.startswith("s3://rollouts/mine/datasets/")
    assert uri.endswith(".jsonl")
    assert uri == (same.spec.dataset.swebench and same.spec.dataset.swebench.uri)
    assert uri != (other.spec.dataset.swebench and other.spec.dataset.swebench.uri)
    assert other.spec.dataset.include == ("demo__*",)


def test_every_bad_row_is_reported_with_its_position() -> None:
    bad = [row(), row(FAIL_TO_PASS=7), row("a/b"), {**row("demo__demo-3"), "x": object()}]

    with pytest.raises(DatasetError) as caught:
        RolloutJob.from_rows(bad, name="mine", spec=SPEC)

    assert [problem.place for problem in caught.value.problems] == ["rows[1]", "rows[2]", "rows[3]"]
    with pytest.raises(DatasetError, match="1 of 1 rows"):
        RolloutJob.from_rows(iter([dict[str, object]()]), name="mine", spec=SPEC)
    for empty in (list[dict[str, object]](), iter(list[dict[str, object]]())):
        with pytest.raises(DatasetError, match="no rows"):
            RolloutJob.from_rows(empty, name="mine", spec=SPEC)
    with pytest.raises(DatasetError, match="to_dict"):
        RolloutJob.from_rows(pd.DataFrame([row()]), name="mine", spec=SPEC)
    with pytest.raises(SpecError, match="PosixPath"):
        RolloutJob.from_rows([row()], name="mine", spec={**SPEC, "store": {"uri": Path("runs")}})
    with pytest.raises(SpecError, match="from_rows"):
        RolloutJob.from_rows([row()], name="mine", spec={**SPEC, "sampels": 3})


def test_rows_in_a_local_store_run_in_this_process_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images" / "demo").mkdir(parents=True)
    (tmp_path / "images" / "demo" / "image.json").write_text("{}")
    sandbox = {"local": {"images": str(tmp_path / "images"), "isolation": "none"}}
    store = {"uri": "file://store"}
    spec = {**SPEC, "store": store, "sandbox": sandbox, "suspend": True}
    monkeypatch.chdir(tmp_path)

    found = RolloutJob.from_rows([row(), row("demo__demo-2")], name="mine", spec=spec).run()

    summary = found.summary
    assert (found.already_committed, found.ran, list(found)) == (0, 0, [])
    assert (summary.episodes, summary.committed) == (2, 0)
    assert len(list(tmp_path.glob("store/datasets/*.jsonl"))) == 1
