"""Files that a user names for output: what is there is kept, unless the user says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.cli.files import require_new, require_page, writing
from swe_rollout.errors import UsageError


def test_a_file_that_is_there_is_replaced_only_when_that_is_said(tmp_path: Path) -> None:
    there = tmp_path / "out.parquet"
    require_new(there, overwrite=False)
    there.write_text("precious")

    with pytest.raises(UsageError, match="exists already") as caught:
        require_new(there, overwrite=False)

    assert "--overwrite" in caught.value.fix
    require_new(there, overwrite=True)
    with pytest.raises(UsageError, match="is a folder"):
        require_new(tmp_path, overwrite=True)


@pytest.mark.parametrize("text", ["<!doctype html>\n<p>", "<!DOCTYPE html>", ""])
def test_an_earlier_page_is_replaced(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text)
    require_page(tmp_path / "page.html")
    require_page(tmp_path / "new.html")


def test_what_is_no_page_is_kept(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: RolloutJob\n")
    with pytest.raises(UsageError, match="is no page"):
        require_page(tmp_path / "job.yaml")


@pytest.mark.parametrize(("name", "fix"), [("no/x", "mkdir -p"), (".", "name a file in it")])
def test_a_file_that_can_not_be_written_says_what_to_do(
    name: str, fix: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with pytest.raises(UsageError, match="can't be written") as caught, writing(path):
        path.write_text("x")
    assert fix in caught.value.fix
