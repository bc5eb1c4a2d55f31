"""Rows and files of user code, uploaded to the store of the job."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from swe_rollout import RolloutJob
from swe_rollout.errors import DatasetError, UsageError
from swe_rollout.launcher.remote import with_dataset
from swe_rollout.launcher.uploads import (
    MAX_FILE_BYTES,
    local_rows,
    quarantine_in_file,
    read_file,
    rows_in_file,
    rows_of,
)
from swe_rollout.spec.dataset import RowFormat, SwebenchDataset
from swe_rollout.types.bad_rows import BadRow
from unit.datasets.test_hub_files import hub as hub  # noqa: PLC0414 - a fixture
from unit.launcher.row_parts import row

CODE = b"limit = 3\n"


def test_a_file_is_named_with_its_digest_and_changes_the_job(
    job_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "my_tools.py"
    path.write_bytes(CODE)

    plain = RolloutJob.from_yaml(job_file)
    job = RolloutJob.from_yaml(job_file, files=[path])
    path.write_bytes(CODE + b"\n")
    changed = job.with_files([path])

    with pytest.raises(UsageError, match="no list"):
        plain.with_files(str(path))
    (entry,) = job.spec.extensions
    assert (entry.name, entry.sha256) == ("my_tools.py", hashlib.sha256(CODE).hexdigest())
    assert len(changed.spec.extensions) == 1
    assert len({plain.digest, job.digest, changed.digest}) == 3
    assert "extensions" not in plain.spec.model_dump(by_alias=True)


async def test_it_lies_in_the_store_under_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "my_tools.py"
    path.write_bytes(CODE)
    file = read_file(path)

    await file.put(f"file://{tmp_path}/store")
    await file.put(f"file://{tmp_path}/store")

    (stored,) = (tmp_path / "store" / "extensions").rglob("*.py")
    assert stored.name == "my_tools.py"
    assert stored.parent.name == file.entry.sha256
    assert stored.read_bytes() == CODE


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("my-tools.py", CODE, "no Python name"),
        ("my_tools.txt", CODE, "no Python name"),
        ("my_tools.py", b"def f(:\n", "invalid syntax"),
        ("my_tools.py", b"\xff\xfe", "utf-8"),
        ("my_tools.py", b"a = '\0'", "null bytes"),
        ("my_tools.py", b"#" * (MAX_FILE_BYTES + 1), "more than 1 MiB"),
    ],
)
def test_a_file_that_can_not_travel_is_refused(
    tmp_path: Path, name: str, data: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(UsageError) as refused:
        read_file(path)

    assert expected in refused.value.why


def test_rows_become_lines_of_json() -> None:
    rows = [row(), row("demo__demo-2")]

    data = rows_of(rows, store_uri="s3://b").data

    assert [json.loads(line) for line in data.decode().splitlines()] == rows


@pytest.mark.usefixtures("hub")
async def test_rows_of_a_hub_are_uploaded_as_lines_and_the_job_reads_those(
    tmp_path: Path, job_file: Path
) -> None:
    asked = SwebenchDataset(uri="me/rows", split="dev", format=RowFormat.SWE_BENCH)
    made = await local_rows(asked, base_dir=tmp_path, store_uri="s3://b/p")
    assert made is not None
    [line] = made.data.decode().splitlines()
    assert json.loads(line)["instance_id"] == "c"

    job = RolloutJob.from_yaml(job_file)
    dataset = job.spec.dataset.model_copy(update={"swebench": asked, "release_pairs": None})
    spec = job.spec.model_copy(update={"dataset": dataset})
    changed = with_dataset(job.model_copy(update={"spec": spec}), made).spec.dataset.swebench
    assert changed == SwebenchDataset(uri=made.uri, format=RowFormat.SWE_BENCH)


def test_a_local_file_is_uploaded_and_an_object_in_a_store_is_not(tmp_path: Path) -> None:
    (tmp_path / "my rows.v1.jsonl.zst").write_bytes(b"data")

    def found(uri: str) -> str | None:
        made = rows_in_file(uri, base_dir=tmp_path, store_uri="s3://b/p")
        return None if made is None else made.uri

    assert found("s3://b/rows.jsonl") is None
    uploaded = found("my rows.v1.jsonl.zst")
    assert uploaded is not None
    assert uploaded.startswith("s3://b/p/datasets/3a6eb0790f39")
    assert uploaded.endswith(".jsonl.zst")
    assert found(f"file://{tmp_path}/my%20rows.v1.jsonl.zst") == uploaded
    with pytest.raises(DatasetError, match="absent"):
        found("absent.jsonl")


def test_a_local_quarantine_file_travels_under_its_digest(tmp_path: Path) -> None:
    data = BadRow("one", "0" * 12, ()).to_line()
    (tmp_path / "quarantine.jsonl").write_bytes(data)
    found = quarantine_in_file("quarantine.jsonl", base_dir=tmp_path, store_uri="s3://b/p")
    assert found is not None
    assert found.data == data
    assert found.uri.startswith("s3://b/p/")
    assert hashlib.sha256(data).hexdigest() in found.uri
    assert quarantine_in_file("s3://x/q.jsonl", base_dir=tmp_path, store_uri="s3://b/p") is None


def test_a_quarantine_file_that_no_worker_could_read_is_refused_before_it_travels(
    tmp_path: Path,
) -> None:
    (tmp_path / "quarantine.jsonl").write_text("nonsense\n")
    with pytest.raises(DatasetError) as caught:
        quarantine_in_file("quarantine.jsonl", base_dir=tmp_path, store_uri="s3://b/p")
    assert caught.value.problems[0].place == "quarantine.jsonl:1"
    with pytest.raises(DatasetError) as missing:
        quarantine_in_file("other.jsonl", base_dir=tmp_path, store_uri="s3://b/p")
    assert missing.value.problems[0].place == "spec.dataset.quarantine"
