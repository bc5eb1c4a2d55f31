"""`view`: one page, of one or two jobs or episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import contents
from swe_rollout.testing.tiny import tokenizer_path
from unit.cli.cli_parts import run_cli
from unit.cli.store_parts import stored


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return stored(tmp_path)


def test_a_jobs_page_is_named_after_it(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "view", address) == 0

    assert capsys.readouterr().out == "demo.html\n"
    index, *records = contents(Path("demo.html").read_text())
    assert index["start"] == ""
    assert index["jobs"][0]["summary"]["committed"] == len(records) == 2
    assert index["jobs"][0]["address"] == f"file://{address}"


def test_two_samples_of_a_group_are_one_page_that_opens_at_both(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cli(monkeypatch, "view", f"{address}/a/0", f"{address}/a/1", "-O", "two.html") == 0

    index, *records = contents(Path("two.html").read_text())
    assert index["start"] == "#/compare/0/a/0/0/a/1"
    assert [record["episode"] for record in records] == ["demo/a/0", "demo/a/1"]


def test_two_jobs_are_one_page(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    other = stored(tmp_path / "other")

    assert run_cli(monkeypatch, "view", address, other, "-O", "jobs.html") == 0

    index, *records = contents(Path("jobs.html").read_text())
    assert [job["address"] for job in index["jobs"]] == [f"file://{address}", f"file://{other}"]
    assert len(records) == 4


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ("{address}/a/0", "a job can't be compared with an episode"),
        ("{address}", "can't be compared with itself"),
        ("{address}/a/9", "is not in the store"),
    ],
)
def test_what_can_not_be_compared_is_refused(
    address: str,
    other: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = f"{address}/a/0" if other.endswith("9") else address
    assert run_cli(monkeypatch, "view", first, other.format(address=address)) == 2
    assert what in capsys.readouterr().err
    assert not list(Path.cwd().glob("*.html"))


def test_a_tokenizer_can_be_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    episode = f"{address}/a/0"
    for name in (str(tokenizer_path()), str(tokenizer_path() / "tokenizer.json")):
        assert run_cli(monkeypatch, "view", episode, "--tokenizer", name, "-O", "x.html") == 0
    assert run_cli(monkeypatch, "view", episode, "--tokenizer", "./nothing", "-O", "y.html") == 3
    assert not Path("y.html").exists()
