"""The pages about slime and verl: their snippets run, and name what there is."""

from __future__ import annotations

import ast
import json
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from checkout import ROOT
from doc_steps import blocks
from swe_rollout.integrations.slime_session import PARK_S, job_of
from unit.integrations.rollouts import TASKS, write_job
from unit.integrations.slime_fields import arguments

HOW_TO = ROOT / "docs" / "how-to"
SLIME, VERL = HOW_TO / "slime.md", HOW_TO / "verl.md"


def options(page: Path) -> list[str]:
    """The words of the page's command, its comments left out."""
    (command,) = blocks(page, "bash")
    return shlex.split(command.replace("\\\n", " "), comments=True)


def names_of(module: str) -> set[str]:
    """What a module defines, without importing its framework."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin) as file:  # noqa: PTH123 - a path of the import system
        tree = ast.parse(file.read())
    return {node.name for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_slimes_rows_name_the_tasks(folder: Path) -> None:
    (snippet,) = blocks(SLIME, "python")
    exec(compile(snippet, "slime.md", "exec"), {})  # noqa: S102 - the page's own
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    assert [row["metadata"]["instance_id"] for row in rows] == list(TASKS)
    assert all(row["prompt"] for row in rows)


def test_verls_rows_name_the_tasks(folder: Path) -> None:
    (snippet,) = blocks(VERL, "python")
    exec(compile(snippet, "verl.md", "exec"), {})  # noqa: S102 - the page's own
    rows: list[dict[str, Any]] = pq.read_table(folder / "rows.parquet").to_pylist()
    assert [row["extra_info"]["instance_id"] for row in rows] == list(TASKS)
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]


def test_slimes_options_name_functions_that_exist() -> None:
    paths = [word for word in options(SLIME) if word.startswith("swe_rollout.")]
    assert len(paths) == 3
    for path in paths:
        module, _, name = path.rpartition(".")
        assert callable(getattr(import_module(module), name))
    assert "SWE_ROLLOUT_JOB=$PWD/job.yaml" in options(SLIME)


def test_slimes_custom_configuration_is_what_is_read() -> None:
    (block,) = blocks(SLIME, "yaml")
    values = yaml.safe_load(block)
    assert job_of(arguments(**values)) == "/jobs/job.yaml"
    assert values["swe_rollout_park_seconds"] == PARK_S


def test_verls_files_name_classes_that_exist_o5() -> None:
    agent, tools = map(yaml.safe_load, blocks(VERL, "yaml"))
    shipped = ROOT / "swe_rollout" / "integrations" / "verl_agent.yaml"
    assert [
        {**entry, "job": "/jobs/job.yaml"} for entry in yaml.safe_load(shipped.read_text())
    ] == (agent)
    targets = [agent[0]["_target_"], *(tool["class_name"] for tool in tools["tools"])]
    for target in targets:
        module, _, name = target.rpartition(".")
        assert name in names_of(module)
    default = next(word for word in options(VERL) if "default_agent_loop" in word)
    assert default.endswith(f"={agent[0]['name']}")
