"""The examples of extensions, run as their files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from checkout import ROOT
from e2e.command import printed_json, swe_rollout
from e2e.records import check, committed, read

EXAMPLES = ROOT / "examples"
FILES = {
    "03-custom-tool": "my_tools.py",
    "04-custom-reward": "my_rewards.py",
    "05-custom-dataset": "my_dataset.py",
}


def run(example: str, store: Path) -> list[dict[str, Any]]:
    """Run an example and return its records, the sample that plays gold first."""
    folder = EXAMPLES / example
    arguments = ["--with", str(folder / FILES[example]), "--store", f"file://{store}"]
    state = printed_json(swe_rollout("run", str(folder / "job.yaml"), *arguments, "-o", "json"))
    assert (state["committed"], state["failures"]) == (2, {})
    name = yaml.safe_load((folder / "job.yaml").read_text())["metadata"]["name"]
    records = [read(path) for path in committed(store / name)]
    for record in records:
        check(record)
        assert record["software"][FILES[example]].startswith("sha256:")
    return records


@pytest.mark.slow
def test_a_tool_of_ones_own_is_called(tmp_path: Path) -> None:
    gold, empty = run("03-custom-tool", tmp_path)

    assert gold["reward"] == 1.0
    assert gold["turns"][-1]["observations"][-1]["text"].startswith("handed in: sqlparse/")
    assert empty["turns"][-1]["observations"][-1]["text"] == "handed in: nothing changed"


def test_a_reward_of_ones_own_is_added(tmp_path: Path) -> None:
    gold, wrong = run("04-custom-reward", tmp_path)

    assert 1.0 < gold["reward"] < 1.25
    terms = {term["name"]: term for term in gold["reward_terms"]}
    assert terms["my_rewards:small_patch"]["weight"] == 0.25
    assert wrong["reward"] == 0.0


@pytest.mark.slow
def test_a_dataset_of_ones_own_is_played_and_validated(tmp_path: Path) -> None:
    gold, empty = run("05-custom-dataset", tmp_path)

    assert gold["episode"] == "custom-dataset/sqlparse-0.5.2-hinted/0"
    assert (gold["reward"], empty["reward"]) == (1.0, 0.0)
    folder = EXAMPLES / "05-custom-dataset"
    arguments = ["--with", str(folder / "my_dataset.py"), "-o", "json"]
    found = printed_json(swe_rollout("validate", str(folder / "job.yaml"), *arguments))
    assert found["instances"] == [
        {
            "instance_id": "sqlparse-0.5.2-hinted",
            "gold": "resolved",
            "empty": "unresolved",
            "check": "ok",
            "passing_without_fix": [],
            "copies": [],
            "watched": 1,
            "findings": [],
        }
    ]
