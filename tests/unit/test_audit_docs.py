"""The pages about audits and reward terms name every check, and what they show works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from swe_rollout.grading import audit
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.grading.wrong_patches import Wrong
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.grading import GradingSpec
from swe_rollout.types.bad_rows import BadRow, Finding
from unit.cli.cli_parts import run_cli

AUDIT = (ROOT / "docs" / "how-to" / "audit.md").read_text("utf-8")
REWARDS = (ROOT / "docs" / "reference" / "rewards.md").read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def table(page: str, first: str) -> list[str]:
    rows = page.partition(f"| {first} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE)


def test_every_check_is_in_the_page() -> None:
    assert table(AUDIT, "check") == [audit.GOLD, audit.BASE, audit.EMPTY, *Wrong, audit.TASK]


def test_the_command_of_the_page_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r"```\nswe-rollout (audit .*)\n```", AUDIT)
    assert run_cli(monkeypatch, *command.split(), "--help") == 0


def test_the_job_of_the_page_has_a_quarantine() -> None:
    [text] = blocks(AUDIT, "yaml")
    assert Dataset.model_validate(yaml.safe_load(text)["dataset"]).quarantine == "quarantine.jsonl"


def test_a_quarantine_file_is_read_as_shown(tmp_path: Path) -> None:
    row = BadRow("a__b-1", "0" * 12, (Finding("base", "it lies"),), ("t",))
    (tmp_path / "quarantine.jsonl").write_bytes(row.to_line())
    [code] = blocks(AUDIT, "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == "a__b-1 base 1\n"


def test_the_reference_of_terms_has_them_all_and_its_job_is_valid() -> None:
    assert sorted(table(REWARDS, "term")) == sorted(REWARD_TERMS.names())
    [text] = blocks(REWARDS, "yaml")
    terms = GradingSpec.model_validate(yaml.safe_load(text)["grading"]).reward
    assert [term.use for term in terms] == ["resolved", "fraction", "length", "judge"]


@pytest.mark.parametrize("page", [AUDIT, REWARDS])
def test_every_link_of_the_pages_leads_somewhere(page: str) -> None:
    folder = ROOT / "docs" / ("how-to" if page is AUDIT else "reference")
    for link in re.findall(r"\]\(([^)#]+)", page):
        assert (folder / link).exists(), link
