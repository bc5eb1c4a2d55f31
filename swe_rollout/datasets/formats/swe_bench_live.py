"""Rows of SWE-bench-Live: commands to rebuild, to test and to print, and often a parser in Python.

A parser is code, so it runs in the grading sandbox. Rows that were only crawled load as tasks that
can't be graded.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from swe_rollout.datasets import projects
from swe_rollout.datasets.formats.scripts import here_document
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    Diff,
    Fault,
    Image,
    Seconds,
    TaskRow,
    TestIds,
    Text,
    Workdir,
    checked,
    extra,
    log_parser,
    problem_of,
)
from swe_rollout.datasets.row_files import Row
from swe_rollout.errors import Problem
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule

_CODE = re.compile(r"^\s*(?:def|import|from)\s", re.MULTILINE)
_CALL: Final = """

import json, sys
print()
print(json.dumps(parser(open(sys.argv[1], encoding="utf-8", errors="replace").read())))
"""
_OptionalCommands = Annotated[Commands | None, BeforeValidator(lambda value: value or None)]


class LiveRow(TaskRow):
    """A row of SWE-bench-Live."""

    test_patch: Diff = ""
    fail_to_pass: TestIds = Field((), alias="FAIL_TO_PASS")
    pass_to_pass: TestIds = Field((), alias="PASS_TO_PASS")
    rebuild_cmds: _OptionalCommands = None
    test_cmds: _OptionalCommands = None
    print_cmds: _OptionalCommands = None
    log_parser: Text = ""
    parser: Text = ""
    docker_image: Image | None = None
    image_name: Image | None = None
    workdir: Workdir = "/testbed"
    test_timeout_s: Seconds = 9000.0


def instance(row: Row, columns: Columns) -> Instance | Problem:
    """Make the instance of a row, or one problem that names every wrong field."""
    record = checked(row, LiveRow, columns)
    if isinstance(record, Problem):
        return record
    if record.test_cmds and not record.fail_to_pass:
        return problem_of(row, [Fault("FAIL_TO_PASS", "expected at least one test id; found none")])
    source = record.log_parser or record.parser or "pytest"
    is_code = _CODE.search(source) is not None
    parser = "json_results" if is_code else log_parser(source, instance_id=record.instance_id)
    if isinstance(parser, Fault):
        return problem_of(row, [parser])
    image = record.docker_image or record.image_name
    return Instance(
        instance_id=record.instance_id,
        source="swe_live",
        repo=record.repo,
        problem_statement=record.problem_statement,
        image=image or projects.image_of(record.instance_id, namespace="starryzhang"),
        base_commit=record.base_commit,
        workdir=record.workdir,
        gold_patch=record.patch,
        test_patch=record.test_patch,
        evaluation=Evaluation(
            commands=_commands(record, source if is_code else ""),
            timeout_s=record.test_timeout_s,
        ),
        log_parser=parser,
        rule=Rule.NO_NEW_FAILURES,
        expected=Expected(record.fail_to_pass, record.pass_to_pass),
        extra=extra(columns, LiveRow),
    )


def _commands(record: LiveRow, parser: str) -> tuple[str, ...]:
    if not record.test_cmds:
        return ()
    tests = "\n".join(record.test_cmds)
    # Without commands that print it, what the tests write is the log.
    shown = "\n".join(record.print_cmds or ('cat "$work/tests.log"',))
    run = (
        "work=$(mktemp -d)",
        *(record.rebuild_cmds or ()),
        f'{{\n{tests}\n}} >"$work/tests.log" 2>&1',
        f'{{\n{shown}\n}} >"$work/shown.log" 2>&1',
    )
    if not parser:
        return (*run, 'cat "$work/shown.log"')
    return (
        *run,
        here_document('"$work/parser.py"', parser + _CALL),
        'tail -c 2000 "$work/shown.log"',
        '"$(command -v python3 || command -v python)" "$work/parser.py" "$work/shown.log"',
    )
