"""Programs by name, reports in JSON, pages published from them, trainers that no index has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rollout_dev.access import ACCOUNTS, BEGIN, END, PAGE, REQUESTS, with_table
from rollout_dev.bench.__main__ import BENCHES
from rollout_dev.bench.publish import ROOT, main, pages
from rollout_dev.conformance.__main__ import CONTRACTS
from rollout_dev.programs import Programs

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


@pytest.mark.parametrize("programs", [BENCHES, CONTRACTS])
def test_without_a_name_all_programs_are_listed(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert programs.run([]) == 0

    first, _, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"usage: scripts/{programs.folder} NAME")
    assert [line.split()[0] for line in lines] == sorted((*programs.with_peers, *programs.others))
    assert all(len(line.split()) > 3 for line in lines)


def test_an_unknown_name_lists_the_known_ones_and_a_name_may_have_hyphens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert CONTRACTS.run(["token-s"]) == 2
    assert "fix   exec, gateway, parsers, tokens" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        BENCHES.run(["local-start", "--help"])
    assert ended.value.code == 0
    assert "usage: scripts/bench local_start" in capsys.readouterr().out


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


def test_a_file_without_a_report_is_an_error_with_a_fix(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "run.json").write_text(json.dumps({"name": "tokens"}))
    assert main([str(root / "run.json"), "--root", str(root)]) == 2
    printed = capsys.readouterr().err
    assert "'rows'" in printed
    assert "--json" in printed
    (root / "README.md").write_text("# swe-rollout")
    with pytest.raises(ValueError, match="README"):
        pages(root)


def test_the_page_of_rights_has_a_row_for_each_request_and_a_column_for_each_account() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0]
    head, _, *rows = table.splitlines()
    assert [cell.strip() for cell in head.split("|")[2:-2]] == [each.title for each in ACCOUNTS]
    assert [row.split("|")[1].strip(" `") for row in rows] == list(map(str, REQUESTS))
    assert with_table(with_table(page, "new\n"), table) == page


def test_skips_a_trainer_that_no_index_has_and_says_how_to_get_it() -> None:
    environment = {name: text for name, text in os.environ.items() if name != "SLIME_SRC"}
    done = subprocess.run(
        [ROOT / "scripts" / "trainers", "test", "slime"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "skipped: slime is on no package index, and $SLIME_SRC names no checkout" in done.stderr
    assert "git clone https://github.com/THUDM/slime; SLIME_SRC=$PWD/slime" in done.stderr
    assert "failed" not in done.stderr
