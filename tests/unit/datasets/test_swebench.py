"""What rows of both generations become; the official ones are in `test_formats`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from swe_rollout.datasets import projects, swebench
from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.errors import Problem, UsageError
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule

PATCH = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
OLD: dict[str, object] = {
    "instance_id": "django__django-11039",
    "repo": "django/django",
    "base_commit": "d5276398046ce4a102776a1e67dcac2884d80dfe",
    "problem_statement": "sqlmigrate wraps its output in BEGIN/COMMIT",
    "patch": PATCH.format("django/core/management/commands/sqlmigrate.py"),
    "test_patch": PATCH.format("tests/migrations/test_commands.py"),
    "FAIL_TO_PASS": '["test_a (migrations.test_commands.MigrateTests)"]',
    "PASS_TO_PASS": "['test_b', \"test_c\"]",
}
OWN = Instance(
    instance_id="adder-1.1",
    source="swebench",
    repo="me/adder",
    problem_statement="1 + 1 is 3\n\nIt should be 2: ü → 2",
    image="swe-rollout/release-pairs/adder:1.0-abc",
    base_commit="0123456789abcdef0123456789abcdef01234567",
    workdir="/src/adder",
    gold_patch=PATCH.format("adder.py"),
    test_patch=PATCH.format("tests/test_adder.py"),
    evaluation=Evaluation(commands=("cd tests", "python3 -m pytest -rA"), timeout_s=42.5),
    log_parser="pytest_v2",
    rule=Rule.FAIL_ONLY,
    expected=Expected(("tests/test_adder.py::test[ü-'\"]",), ("b", "a")),
)


async def load_one(folder: Path, row: dict[str, object]) -> Instance:
    (folder / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    [result] = await swebench.load("rows.jsonl", base_dir=folder)
    assert isinstance(result, Instance), str(result)
    return result


async def test_a_row_of_the_first_generation_gets_image_command_and_parser_by_rule(
    tmp_path: Path,
) -> None:
    instance = await load_one(tmp_path, OLD)
    assert instance.source == "swebench"
    assert instance.image == "swebench/sweb.eval.x86_64.django_1776_django-11039:latest"
    assert instance.log_parser == "django"
    assert instance.evaluation.script is None
    assert instance.evaluation.commands[0].endswith(
        "\n./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 "
        "migrations.test_commands"
    )
    assert instance.expected == Expected(
        ("test_a (migrations.test_commands.MigrateTests)",), ("test_b", "test_c")
    )


async def test_a_row_of_the_second_generation_keeps_its_script_and_image(tmp_path: Path) -> None:
    row = OLD | {
        "image": "swebench/sweb.eval.x86_64.x:latest",
        "eval_script": "#!/bin/bash\ntrue\n",
        "log_parser": "parse_log_sphinx",
        "eval_type": "fail_only",
    }
    instance = await load_one(tmp_path, row)
    assert instance.source == "swebench_v5"
    assert instance.image == "swebench/sweb.eval.x86_64.x:latest"
    assert instance.evaluation == Evaluation(script="#!/bin/bash\ntrue\n")
    assert instance.log_parser == "pytest_v2"
    assert instance.rule is Rule.FAIL_ONLY


async def test_a_column_without_a_value_is_absent_and_an_image_name_wins_over_the_rule(
    tmp_path: Path,
) -> None:
    empty = dict.fromkeys(("image", "eval_script", "test_cmd"))
    instance = await load_one(tmp_path, OLD | empty | {"image_name": "mirror.example/a:1"})
    assert (instance.source, instance.image) == ("swebench", "mirror.example/a:1")


@pytest.mark.parametrize(
    "instance",
    [
        OWN,
        dataclasses.replace(OWN, source="swebench_v5", evaluation=Evaluation(script="#!/bin/sh\n")),
    ],
    ids=["commands", "script"],
)
async def test_a_row_made_of_an_instance_reads_back_as_the_same_instance(
    tmp_path: Path, instance: Instance
) -> None:
    assert await load_one(tmp_path, to_row(instance)) == instance


def test_a_log_parser_that_rows_can_not_name_is_not_written() -> None:
    with pytest.raises(UsageError, match="rows can't name the log parser mine:parse"):
        to_row(dataclasses.replace(OWN, log_parser="mine:parse"))


async def test_a_parser_for_all_rows_replaces_theirs(tmp_path: Path) -> None:
    row = OLD | {"log_parser": "parse_log_haskell"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    [refused] = await swebench.load("rows.jsonl", base_dir=tmp_path)
    assert isinstance(refused, Problem)
    [result] = await swebench.load("rows.jsonl", base_dir=tmp_path, log_parser="mine:cargo")
    assert isinstance(result, Instance)
    assert result.log_parser == "mine:cargo"


def test_files_that_are_data_or_deleted_are_not_run() -> None:
    deleted = "diff --git a/tests/old.py b/tests/old.py\n--- a/tests/old.py\n+++ /dev/null\n"
    patch = PATCH.format("tests/data.json") + deleted + PATCH.format("tests/a b.py")
    command = projects.test_command("a/b", patch)
    assert command is not None
    assert command.splitlines()[-1] == "pytest -rA 'tests/a b.py'"
