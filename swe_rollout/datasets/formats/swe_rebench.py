"""Read rows of SWE-rebench, versions 1 and 2: the test command is in `install_config`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from swe_rollout.datasets import projects
from swe_rollout.datasets.column_text import json_value
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    RowModel,
    TaskRow,
    TestIds,
    Text,
    checked,
    log_parser,
    wrong,
)
from swe_rollout.types.instance import Instance, Rule

_LOCALE: Final = "export LANG=C.UTF-8 LC_ALL=C.UTF-8"
_IN_PLACE = re.compile(r"(?:^|\s)(?:-e|--editable|develop)(?:\s|=|$)")


class InstallConfig(RowModel):
    """How to build and test a project. Parquet gives every row the union of all rows' keys."""

    test_cmd: Commands
    log_parser: Text
    install: Annotated[Commands | None, BeforeValidator(lambda value: value or None)] = None


class RebenchRow(TaskRow):
    """A row of either version of the dataset."""

    fail_to_pass: TestIds = Field(alias="FAIL_TO_PASS", min_length=1)
    install_config: Annotated[InstallConfig, BeforeValidator(json_value)]

    @property
    def log_parser(self) -> str:
        """The parser that the row names. Raises WrongRowError for an unknown one."""
        name, field = self.install_config.log_parser, "install_config.log_parser"
        return log_parser(name, instance_id=self.instance_id, field=field)


def instance(columns: Columns) -> Instance:
    """Make the instance of a row of the first version. Raises WrongRowError."""
    record = checked(RebenchRow, columns)
    config = record.install_config
    tests = " ".join(projects.test_arguments(record.test_patch))
    # An editable install has the patch already; otherwise the tests would not see it.
    again = [c for c in config.install or () if not _IN_PLACE.search(c)]
    *before, run = config.test_cmd
    image = record.docker_image or record.image_name
    task = record.task(
        columns,
        source="rebench",
        image=image or projects.image_of(record.instance_id, namespace="swerebench"),
        commands=(projects.CONDA, _LOCALE, *again, *before, f"{run} {tests}".rstrip()),
    )
    return replace(task, log_parser=record.log_parser)


def instance_v2(columns: Columns) -> Instance:
    """Make the instance of a row of the second version. Raises WrongRowError."""
    record = checked(RebenchRow, columns)
    image = record.image_name or record.docker_image
    if image is None:
        raise wrong("image_name", "missing")
    name = record.repo.rpartition("/")[2]
    if not re.fullmatch(r"[\w.+-]{1,200}", name) or name in (".", ".."):
        raise wrong("repo", "expected owner/name: the folder has its name")
    commands = ("set -e", *record.install_config.test_cmd)
    task = record.task(columns, source="rebench_v2", image=image, commands=commands)
    return replace(task, workdir=f"/{name}", log_parser=record.log_parser, rule=Rule.PASS_SET_EQUAL)
