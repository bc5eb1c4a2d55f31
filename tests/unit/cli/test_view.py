"""`view`: one page, of one or two jobs or episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import contents
from swe_rollout.testing.tiny import tokenizer_path
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import stored


def test_a_jobs_page_is_named_after_it(address: str, cli: Cli) -> None:
    assert cli("view", address).out == "demo.html\n"
    index, *records = contents(Path("demo.html").read_text())
    assert index["start"] == ""
    assert index["jobs"][0]["summary"]["committed"] == len(records) == 2
    assert index["jobs"][0]["address"] == f"file://{address}"


def test_two_samples_of_a_group_are_one_page_that_opens_at_both(address: str, cli: Cli) -> None:
    cli("view", f"{address}/a/0", f"{address}/a/1", "-O", "two.html")

    index, *records = contents(Path("two.html").read_text())
    assert index["start"] == "#/compare/0/a/0/0/a/1"
    assert [record["episode"] for record in records] == ["demo/a/0", "demo/a/1"]


def test_two_jobs_are_one_page(address: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "other").mkdir()
    other = stored(tmp_path / "other")

    cli("view", address, other, "-O", "jobs.html")

    index, *records = contents(Path("jobs.html").read_text())
    assert [job["address"] for job in index["jobs"]] == [f"file://{address}", f"file://{other}"]
    assert len(records) == 4


def test_a_tokenizer_can_be_named(address: str, cli: Cli, caplog: pytest.LogCaptureFixture) -> None:
    episode = f"{address}/a/0"
    for name in (str(tokenizer_path()), str(tokenizer_path() / "tokenizer.json")):
        cli("view", episode, "--tokenizer", name, "-O", "x.html")
    cli("view", address, "--tokenizer", "./nothing", "-O", "y.html", code=3)
    assert not caplog.records, "the event loop could not close what reads the records"
    assert not Path("y.html").exists()


def test_dumps_of_the_library_are_a_page(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = '{"role": "assistant", "content": "done"}'
    old = tmp_path / "old"
    old.mkdir()
    (old / "a_20250101.jsonl").write_text(message)
    (old / "b.jsonl").write_text("[]")

    done = cli("view", str(old))

    assert done.out == "old.html\n"
    assert "b.jsonl is no dump of a trajectory: line 1 is no message with a role" in done.err
    index, record = contents(Path("old.html").read_text())
    assert index["start"] == "#/0/a_20250101/0"
    assert record["turns"][0]["text"] == "done"
