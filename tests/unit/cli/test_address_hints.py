"""What an address is that names no job; more of it in tests/e2e/wrong_uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.cli.job_address import job_named_wrongly, local_job
from unit.cli.store_parts import stored


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stored(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "what", "fix"),
    [
        ("runs", "runs is a store and no job", "name one of its jobs: runs/demo"),
        ("demo", "demo is the name of a job in the folder runs", "write runs/demo"),
        ("runs/demo/a", "names an instance of the job runs/demo", "write runs/demo/a/0 "),
        ("runs/demo/aa", "names an instance", "write runs/demo/a/0 "),
        ("runs/demo/zzz", "names an instance", "write runs/demo/INSTANCE/0 "),
        ("runs/demo/a/0", "names an episode of the job runs/demo", "write runs/demo;"),
        ("runs/demo/episodes", "or something in its folder", "write runs/demo;"),
        ("~/runs/demo", "is no address of a job", "/runs/demo"),
        ("gs:/bucket/demo", "is no address of a job", "write gs://bucket/demo"),
        (" runs/demo", "is no address of a job", "write runs/demo"),
    ],
)
def test_an_address_that_is_something_else_is_named(
    address: str, what: str, fix: str, folder: Path
) -> None:
    del folder
    error = job_named_wrongly(address)

    assert error is not None
    assert what in error.what
    assert fix in error.fix


@pytest.mark.parametrize("address", ["s3://bucket/demo", "nothing/demo", "nothing", "runs/other"])
def test_nothing_is_said_of_an_address_that_may_be_right(address: str, folder: Path) -> None:
    del folder
    assert job_named_wrongly(address) is None


def test_a_file_that_is_no_job_still_says_how_an_address_is_written(folder: Path) -> None:
    (folder / "job.yaml").write_text("kind: Pod\n")

    error = job_named_wrongly("job.yaml")

    assert error is not None
    assert error.fix == "write the store, a slash, and the job's name: runs/demo"


def test_two_slashes_in_place_of_three_are_seen(folder: Path) -> None:
    error = job_named_wrongly(f"file:/{folder}/runs/demo")

    assert error is not None
    assert error.fix == f"write file://{folder}/runs/demo"


def test_a_job_in_a_folder_is_told_from_one_on_the_cluster(folder: Path) -> None:
    del folder
    assert local_job("runs/demo") == Path("runs/demo")
    assert local_job("demo") is None
    assert local_job("team/demo") is None
