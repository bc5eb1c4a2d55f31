"""Pages that list what there is: each list is complete, and what they show works."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from doc_steps import blocks, names_in_table
from rollout_dev.fuzz.surfaces import SURFACES
from swe_rollout.datasets.formats import FORMATS
from swe_rollout.grading import audit
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.grading.wrong_patches import Wrong
from swe_rollout.spec.dataset import Dataset, RowFormat
from swe_rollout.spec.grading import GradingSpec
from swe_rollout.spec.policy import Policy
from swe_rollout.types.bad_rows import BadRow, Finding
from swe_rollout.types.instance import BUILTIN_LOG_PARSERS, Rule
from unit.cli.cli_parts import run_cli

HOW_TO, REFERENCE = ROOT / "docs" / "how-to", ROOT / "docs" / "reference"
AUDIT, DATASETS, REWARDS = HOW_TO / "audit.md", HOW_TO / "datasets.md", REFERENCE / "rewards.md"
TRAINERS = ("areal", "skyrl", "tinker", "verifiers")
THREATS = (REFERENCE / "threats.md").read_text("utf-8")
POINTS = {int(row[1]): row[0] for row in re.finditer(r"^\| (\d+) \|.*\|$", THREATS, re.MULTILINE)}


@pytest.mark.parametrize(
    ("page", "first", "names"),
    [
        (DATASETS, "`format`", FORMATS),
        (DATASETS, "rule", [rule.value for rule in Rule]),
        (AUDIT, "check", [audit.GOLD, audit.BASE, audit.EMPTY, *Wrong, audit.TASK]),
    ],
    ids=["formats", "rules", "checks"],
)
def test_a_table_lists_all_there_are(page: Path, first: str, names: Iterable[str]) -> None:
    assert names_in_table(page, first) == list(names)


def test_every_policy_is_on_the_page() -> None:
    page = (HOW_TO / "engines.md").read_text("utf-8")
    assert [name for name in Policy.variants() if f"| `{name}` |" not in page] == []


def test_every_format_is_in_the_spec() -> None:
    assert [name.value for name in RowFormat] == ["auto", *FORMATS]


def test_every_parser_is_on_the_page() -> None:
    listed = DATASETS.read_text("utf-8").partition("or by these:\n\n")[2].partition("\n\n")[0]
    names = re.sub(r"\([^)]*\)", ",", listed).replace("·", ",").replace("\n", " ")
    assert sorted(filter(None, (name.strip() for name in names.split(",")))) == sorted(
        BUILTIN_LOG_PARSERS
    )


def test_the_terms_of_the_reference_are_those_there_are_and_its_job_is_valid() -> None:
    assert sorted(names_in_table(REWARDS, "term")) == sorted(REWARD_TERMS._builtin)
    [text] = blocks(REWARDS, "yaml")
    terms = GradingSpec.model_validate(yaml.safe_load(text)["grading"]).reward
    assert [term.use for term in terms] == ["resolved", "fraction", "length", "judge"]


def test_the_command_for_an_audit_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r"```\nswe-rollout (audit .*)\n```", AUDIT.read_text("utf-8"))
    assert run_cli(monkeypatch, *command.split(), "--help") == 0


def printed(page: Path, folder: Path) -> str:
    """Return what the one Python block of a page prints in a folder."""
    [code] = blocks(page, "python")
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_a_quarantine_file_is_read_as_shown(tmp_path: Path) -> None:
    [text] = blocks(AUDIT, "yaml")
    assert Dataset.model_validate(yaml.safe_load(text)["dataset"]).quarantine == "quarantine.jsonl"
    row = BadRow("a__b-1", "0" * 12, (Finding("base", "it lies"),), ("t",))
    (tmp_path / "quarantine.jsonl").write_bytes(row.to_line())
    assert printed(AUDIT, tmp_path) == "a__b-1 base 1\n"


def test_rows_of_swe_bench_pro_are_joined_as_shown(tmp_path: Path) -> None:
    folder = tmp_path / "SWE-bench_Pro-os" / "run_scripts" / "a"
    folder.mkdir(parents=True)
    (folder / "run_script.sh").write_text("run")
    (folder / "parser.py").write_text("parse")
    (tmp_path / "rows.jsonl").write_text('{"instance_id": "a"}\n')
    printed(DATASETS, tmp_path)
    joined = json.loads((tmp_path / "joined.jsonl").read_text())
    assert joined == {"instance_id": "a", "run_script": "run", "parser_script": "parse"}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_page_about_a_trainer_is_short_and_its_python_compiles(name: str) -> None:
    """`tests/trainers` runs that Python beside the frameworks."""
    page = HOW_TO / f"{name}.md"
    assert len(page.read_text("utf-8").splitlines()) <= 60
    assert blocks(page, "python")
    for block in blocks(page, "python"):
        ast.parse(block)


def test_each_point_of_the_threats_names_a_test_that_holds_it() -> None:
    assert list(range(1, len(POINTS) + 1)) == sorted(POINTS)
    for number, row in POINTS.items():
        named = re.search(r"\| `([\w/]+\.py)` \|$", row)
        assert named, f"point {number} names no test"
        text = (ROOT / "tests" / named[1]).read_text()
        # The attacks of local sandboxes get their points from a table.
        assert f"threat(point={number})" in text or "threat(point=_POINTS" in text, number


def test_every_pair_of_attacker_and_victim_has_points_and_no_point_is_left_out() -> None:
    pairs = re.findall(r"^\| (\D[^|]+) \| ([^|]+) \| ([\d, ]+) \|$", THREATS, re.MULTILINE)
    assert len(pairs) == 5
    named = {int(each) for _, _, points in pairs for each in points.split(",")}
    assert named == POINTS.keys()


def test_the_number_of_surfaces_is_the_one_there_is() -> None:
    for text in (THREATS, (ROOT / "CHANGELOG.md").read_text()):
        assert f"{len(SURFACES)} surfaces" in text
