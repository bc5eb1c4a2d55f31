"""The page about datasets names every format, rule and parser, and what it shows works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from swe_rollout.datasets.formats import FORMATS
from swe_rollout.spec.dataset import Dataset, RowFormat
from swe_rollout.types.instance import BUILTIN_LOG_PARSERS, Rule

PAGE = (ROOT / "docs" / "how-to" / "datasets.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def table(first: str) -> list[str]:
    rows = PAGE.partition(f"| {first} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE)


def test_every_format_is_in_the_page_and_in_the_spec() -> None:
    assert table("`format`") == list(FORMATS)
    assert [name.value for name in RowFormat] == ["auto", *FORMATS]


def test_every_rule_is_in_the_page() -> None:
    assert table("rule") == [rule.value for rule in Rule]


def test_every_parser_is_in_the_page() -> None:
    listed = PAGE.partition("or by these:\n\n")[2].partition("\n\n")[0]
    names = re.sub(r"\([^)]*\)", ",", listed).replace("·", ",").replace("\n", " ")
    assert sorted(filter(None, (name.strip() for name in names.split(",")))) == sorted(
        BUILTIN_LOG_PARSERS
    )


@pytest.mark.parametrize("text", blocks("yaml"))
def test_what_a_job_says_is_valid(text: str) -> None:
    Dataset.model_validate(yaml.safe_load(text)["dataset"])


def test_rows_of_swe_bench_pro_are_joined_as_shown(tmp_path: Path) -> None:
    folder = tmp_path / "SWE-bench_Pro-os" / "run_scripts" / "a"
    folder.mkdir(parents=True)
    (folder / "run_script.sh").write_text("run")
    (folder / "parser.py").write_text("parse")
    (tmp_path / "rows.jsonl").write_text('{"instance_id": "a"}\n')
    [code] = blocks("python")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    joined = json.loads((tmp_path / "joined.jsonl").read_text())
    assert joined == {"instance_id": "a", "run_script": "run", "parser_script": "parse"}
