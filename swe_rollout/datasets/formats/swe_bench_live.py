"""Read rows of SWE-bench-Live: commands to rebuild, test and print, often with a Python parser.

A parser is code, so it runs in the grading sandbox. Rows that were only crawled become tasks that
can't be graded.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from swe_rollout.datasets.projects import here_document, image_of
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    Diff,
    Seconds,
    TaskRow,
    TestIds,
    Text,
    Workdir,
    checked,
    log_parser,
    wrong,
)
from swe_rollout.types.instance import Instance, Rule

_CODE = re.compile(r"^[ \t]*(?:def|import|from)\s", re.MULTILINE)
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
    workdir: Workdir = "/testbed"
    test_timeout_s: Seconds = 9000.0


def instance(columns: Columns) -> Instance:
    """Make the instance of a row. Raises WrongRowError, which names every wrong field."""
    record = checked(LiveRow, columns)
    if record.test_cmds and not record.fail_to_pass:
        raise wrong("FAIL_TO_PASS", "expected at least one test id; found none")
    source = record.log_parser or record.parser or "pytest"
    is_code = _CODE.search(source) is not None
    task = record.task(
        columns,
        source="swe_live",
        image=record.docker_image
        or record.image_name
        or image_of(record.instance_id, namespace="starryzhang"),
        commands=_commands(record, source if is_code else ""),
    )
    return replace(
        task,
        workdir=record.workdir,
        log_parser="json_results"
        if is_code
        else log_parser(source, instance_id=record.instance_id),
        rule=Rule.NO_NEW_FAILURES,
    )


def _commands(record: LiveRow, parser: str) -> tuple[str, ...]:
    if not record.test_cmds:
        return ()
    tests = "\n".join(record.test_cmds)
    # Without commands that print the log, the output of the tests is the log.
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
