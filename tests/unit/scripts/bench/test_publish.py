"""The published pages: every figure, under a label, from the JSON that is published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rollout_dev.bench.publish import ROOT, main, pages

REPORT = {
    "name": "tokens",
    "rows": [
        {"subject": "swe-rollout", "p50_ms_50": 0.4, "p50_ms_1000": 0.96},
        {"subject": "strands-sglang 0.4.3", "p50_ms_1000": 1.44},
        {"subject": "a peer", "skipped": "run scripts/peers"},
    ],
    "ratios": {"ours_to_floor": 1.25},
    "ok": True,
    "notes": ["a note"],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what is published."""
    shutil.copytree(ROOT / "docs" / "performance", tmp_path / "docs" / "performance")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_the_page_has_every_figure_and_says_what_was_skipped(root: Path) -> None:
    (root / "run.json").write_text("a progress line\n" + json.dumps(REPORT))

    assert main([str(root / "run.json"), "--root", str(root)]) == 0

    page = (root / "docs" / "performance.md").read_text()
    assert "| p50, 50 turns, ms | 0.4 |  |" in page
    assert "a peer: run scripts/peers." in page
    assert "`scripts/bench tokens`: all goals met." in page
    assert "- ours to floor: 1.25\n- a note" in page
    assert "## exec" in page, "what else is published stays"
    assert "| 1.0 ms | 1.4 ms with strands-sglang |" in (root / "README.md").read_text()


def test_the_pages_of_the_repository_are_what_is_published() -> None:
    for path, text in pages(ROOT).items():
        assert path.read_text("utf-8") == text, f"{path}: run scripts/bench publish"


def test_readme_without_its_marks_is_an_error(root: Path) -> None:
    (root / "README.md").write_text("# swe-rollout")
    with pytest.raises(ValueError, match="README"):
        pages(root)


def test_a_file_without_a_report_is_an_error_with_a_fix(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "run.json").write_text(json.dumps({"name": "tokens"}))

    assert main([str(root / "run.json"), "--root", str(root)]) == 2

    printed = capsys.readouterr().err
    assert "'rows'" in printed
    assert "--json" in printed
    assert not (root / "docs" / "performance.md").exists()
