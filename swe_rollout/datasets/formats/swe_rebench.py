"""Rows of SWE-rebench, first and second version: the test command is in `install_config`."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field

from swe_rollout.datasets import projects
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    Fault,
    Image,
    RowModel,
    Seconds,
    TaskRow,
    TestIds,
    Text,
    checked,
    extra,
    json_value,
    log_parser,
    problem_of,
)
from swe_rollout.datasets.row_files import Row
from swe_rollout.errors import Problem
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule

_LOCALE: Final = "export LANG=C.UTF-8 LC_ALL=C.UTF-8"
_IN_PLACE = re.compile(r"(?:^|\s)(?:-e|--editable|develop)(?:\s|=|$)")


class InstallConfig(RowModel):
    """How a project is built and tested."""

    # Parquet gives every row the union of all rows' keys.
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    test_cmd: Commands
    log_parser: Text
    install: Annotated[Commands | None, BeforeValidator(lambda value: value or None)] = None


class RebenchRow(TaskRow):
    """A row of either version."""

    fail_to_pass: TestIds = Field(alias="FAIL_TO_PASS", min_length=1)
    pass_to_pass: TestIds = Field(alias="PASS_TO_PASS")
    install_config: Annotated[InstallConfig, BeforeValidator(json_value)]
    image_name: Image | None = None
    docker_image: Image | None = None
    test_timeout_s: Seconds = 1800.0


def instance(row: Row, columns: Columns) -> Instance | Problem:
    """Make the instance of a row of the first version, or name every wrong field."""
    record = checked(row, RebenchRow, columns)
    if isinstance(record, Problem):
        return record
    config = record.install_config
    tests = " ".join(projects.test_arguments(record.test_patch))
    # Installed in place, the patch is there already; else the tests would not see it.
    again = [c for c in config.install or () if not _IN_PLACE.search(c)]
    *before, run = config.test_cmd
    commands = (projects.CONDA, _LOCALE, *again, *before, f"{run} {tests}".rstrip())
    image = record.docker_image or record.image_name
    return _instance(
        row,
        columns,
        record,
        source="rebench",
        image=image or projects.image_of(record.instance_id, namespace="swerebench"),
        workdir="/testbed",
        commands=commands,
        rule=Rule.F2P_P2P,
    )


def instance_v2(row: Row, columns: Columns) -> Instance | Problem:
    """Make the instance of a row of the second version, or name every wrong field."""
    record = checked(row, RebenchRow, columns)
    if isinstance(record, Problem):
        return record
    image = record.image_name or record.docker_image
    if image is None:
        return problem_of(row, [Fault("image_name", "missing")])
    name = record.repo.rpartition("/")[2]
    if not re.fullmatch(r"[\w.+-]{1,200}", name) or name in (".", ".."):
        return problem_of(row, [Fault("repo", "expected owner/name: the folder has its name")])
    return _instance(
        row,
        columns,
        record,
        source="rebench_v2",
        image=image,
        workdir=f"/{name}",
        commands=("set -e", *record.install_config.test_cmd),
        rule=Rule.PASS_SET_EQUAL,
    )


def _instance(
    row: Row,
    columns: Columns,
    record: RebenchRow,
    *,
    source: str,
    image: str,
    workdir: str,
    commands: tuple[str, ...],
    rule: Rule,
) -> Instance | Problem:
    parser = log_parser(record.install_config.log_parser, instance_id=record.instance_id)
    if isinstance(parser, Fault):
        return problem_of(row, [Fault("install_config.log_parser", parser.message)])
    return Instance(
        instance_id=record.instance_id,
        source=source,
        repo=record.repo,
        problem_statement=record.problem_statement,
        image=image,
        base_commit=record.base_commit,
        workdir=workdir,
        gold_patch=record.patch,
        test_patch=record.test_patch,
        evaluation=Evaluation(commands=commands, timeout_s=record.test_timeout_s),
        log_parser=parser,
        rule=rule,
        expected=Expected(record.fail_to_pass, record.pass_to_pass),
        extra=extra(columns, RebenchRow),
    )
