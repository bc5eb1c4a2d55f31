"""Read rows of both generations of SWE-bench, of SWE-Gym, and users' own in the same form.

In the first generation, image, test command and parser follow from the repository (`projects`); in
the second, the row names them (`image, eval_script, log_parser, eval_type`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from swe_rollout.datasets import projects
from swe_rollout.datasets.official_parsers import official_name
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    Image,
    TaskRow,
    Text,
    Version,
    Workdir,
    checked,
    log_parser,
    wrong,
)
from swe_rollout.errors import UsageError
from swe_rollout.types.instance import Instance, Rule


class SwebenchRow(TaskRow):
    """A row of either generation, with the columns that users' own rows may add."""

    version: Version = ""

    # Columns of the second generation.
    image: Image | None = None
    eval_script: Text | None = None
    log_parser: Text | None = None
    eval_type: Literal["pass_and_fail", "fail_only"] = "pass_and_fail"

    # Columns of users' own rows.
    test_cmd: Commands | None = None
    workdir: Workdir = "/testbed"
    allow_internet: bool | None = None


def instance(columns: Columns) -> Instance:
    """Make the instance of a row. Raises WrongRowError, which names every wrong field."""
    record = checked(SwebenchRow, columns)
    # One official row has only tests to keep passing.
    if not (record.fail_to_pass or record.pass_to_pass):
        raise wrong("FAIL_TO_PASS", "expected at least one test id; found none")
    parser = projects.project_of(record.repo).log_parser
    if (named := record.log_parser) is not None:
        parser = log_parser(named, instance_id=record.instance_id, version=record.version)
    image = record.image or record.image_name or record.docker_image
    task = record.task(
        columns,
        source="swebench" if record.eval_script is None else "swebench_v5",
        image=image or projects.image_of(record.instance_id, record.repo),
        commands=_commands(record) if record.eval_script is None else (),
    )
    return replace(
        task,
        workdir=record.workdir,
        wants_network=record.allow_internet,
        evaluation=replace(task.evaluation, script=record.eval_script),
        log_parser=parser,
        rule=Rule.FAIL_ONLY if record.eval_type == "fail_only" else Rule.F2P_P2P,
    )


def _commands(record: SwebenchRow) -> tuple[str, ...]:
    """Choose the commands that run the tests of a row that has no script."""
    if record.test_cmd is not None:
        return record.test_cmd
    command = projects.test_command(record.repo, record.test_patch)
    if command is None:
        raise wrong("test_patch", "touches no file; add `test_cmd` or `eval_script`")
    return (command,)


def to_row(instance: Instance) -> dict[str, object]:
    """Return the instance as a row, which the source `swebench` reads back as the same task.

    Raises UsageError for a log parser that rows can't name.
    """
    evaluation = instance.evaluation
    log_parser = official_name(instance.log_parser)
    if log_parser is None:
        raise UsageError(
            f"{instance.instance_id} can't be written as a row",
            why=f"rows can't name the log parser {instance.log_parser}",
            fix="name it in the job's `grading.logParser`, and leave it out of the instance",
        )
    row: dict[str, object] = {
        "instance_id": instance.instance_id,
        "repo": instance.repo,
        "base_commit": instance.base_commit,
        "problem_statement": instance.problem_statement,
        "patch": instance.gold_patch,
        "test_patch": instance.test_patch,
        "FAIL_TO_PASS": list(instance.expected.fail_to_pass),
        "PASS_TO_PASS": list(instance.expected.pass_to_pass),
        "image": instance.image,
        "workdir": instance.workdir,
        "log_parser": log_parser,
        "eval_type": "fail_only" if instance.rule is Rule.FAIL_ONLY else "pass_and_fail",
        "test_timeout_s": evaluation.timeout_s,
    }
    if evaluation.script is not None:
        return row | {"eval_script": evaluation.script}
    return row | {"test_cmd": list(evaluation.commands)}
