"""Rows of SWE-bench in both generations, of SWE-gym, and users' own in the same form.

First generation: image, test command and parser follow from the repository (`projects`). Second
generation: the row names them (`image, eval_script, log_parser, eval_type`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from swe_rollout.datasets import projects
from swe_rollout.datasets.official_parsers import official_name
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    Fault,
    Image,
    Seconds,
    TaskRow,
    TestIds,
    Text,
    Version,
    Workdir,
    checked,
    extra,
    log_parser,
    problem_of,
)
from swe_rollout.datasets.row_files import Row
from swe_rollout.errors import Problem, UsageError
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule


class SwebenchRow(TaskRow):
    """A row of either generation, and the columns that users' own rows may add."""

    fail_to_pass: TestIds = Field(alias="FAIL_TO_PASS")
    pass_to_pass: TestIds = Field(alias="PASS_TO_PASS")
    version: Version = ""

    # The second generation.
    image: Image | None = None
    eval_script: Text | None = None
    log_parser: Text | None = None
    eval_type: Literal["pass_and_fail", "fail_only"] = "pass_and_fail"

    # Other names of the image in copies of the first generation.
    image_name: Image | None = None
    docker_image: Image | None = None

    # Own rows.
    test_cmd: Commands | None = None
    test_timeout_s: Seconds = 1800.0
    workdir: Workdir = "/testbed"
    allow_internet: bool | None = None


def instance(row: Row, columns: Columns) -> Instance | Problem:
    """Make the instance of a row, or one problem that names every wrong field."""
    record = checked(row, SwebenchRow, columns)
    if isinstance(record, Problem):
        return record
    # One official row has tests to keep passing alone.
    if not (record.fail_to_pass or record.pass_to_pass):
        return problem_of(row, [Fault("FAIL_TO_PASS", "expected at least one test id; found none")])
    parser = projects.project_of(record.repo).log_parser
    if record.log_parser is not None:
        named = log_parser(
            record.log_parser, instance_id=record.instance_id, version=record.version
        )
        if isinstance(named, Fault):
            return problem_of(row, [named])
        parser = named
    commands = () if record.eval_script is not None else _commands(record)
    if isinstance(commands, Fault):
        return problem_of(row, [commands])
    image = record.image or record.image_name or record.docker_image
    return Instance(
        instance_id=record.instance_id,
        source="swebench" if record.eval_script is None else "swebench_v5",
        repo=record.repo,
        problem_statement=record.problem_statement,
        image=image or projects.image_of(record.instance_id, record.repo),
        base_commit=record.base_commit,
        workdir=record.workdir,
        wants_network=record.allow_internet,
        gold_patch=record.patch,
        test_patch=record.test_patch,
        evaluation=Evaluation(record.eval_script, commands, record.test_timeout_s),
        log_parser=parser,
        rule=Rule.FAIL_ONLY if record.eval_type == "fail_only" else Rule.F2P_P2P,
        expected=Expected(record.fail_to_pass, record.pass_to_pass),
        extra=extra(columns, SwebenchRow),
    )


def _commands(record: SwebenchRow) -> tuple[str, ...] | Fault:
    """Choose the commands that run the tests of a row without a script."""
    if record.test_cmd is not None:
        return record.test_cmd
    command = projects.test_command(record.repo, record.test_patch)
    if command is None:
        return Fault("test_patch", "touches no file; add `test_cmd` or `eval_script`")
    return (command,)


def to_row(instance: Instance) -> dict[str, object]:
    """Return the instance as a row that the source `swebench` reads back as the same task.

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
