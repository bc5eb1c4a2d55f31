"""The checklist of the seed systems names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkout import ROOT
from rollout_dev.seeds.checklist import load_rows
from rollout_dev.seeds.tests_in import missing_tests


def test_every_test_of_the_checklist_exists() -> None:
    named = [test for row in load_rows() for test in row.tests]
    assert named
    assert missing_tests(ROOT, named) == ()


def test_a_test_that_does_not_exist_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("async def test_one(): ...\n")
    names = ("test_a.py::test_one[x]", "test_a.py::test_two", "test_b.py::test_one")
    assert missing_tests(tmp_path, names) == names[1:]


def test_a_row_without_tests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text('[A1]\nwhat = "x"\n')
    with pytest.raises(ValueError, match="A1 must have"):
        load_rows(path)
