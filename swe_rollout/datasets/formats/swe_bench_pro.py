"""Read rows of SWE-bench-Pro, joined with each instance's script and parser.

The dataset has these as separate files, `run_scripts/<instance>/run_script.sh` and `parser.py`. The
parser is code, so it runs in the grading sandbox.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Final

from pydantic import AliasChoices, Field

from swe_rollout.datasets.projects import here_document
from swe_rollout.datasets.row_fields import (
    Columns,
    Fault,
    Seconds,
    TaskRow,
    TestIds,
    Text,
    WrongRowError,
    checked,
    wrong,
)
from swe_rollout.types.instance import Instance, Rule

_IMAGES: Final = "jefzda/sweap-images"
_LONGEST_TAG: Final = 128
_ELEMENT: Final = "element-hq/element-web"
_WHOLE_NAME: Final = (
    "instance_element-hq__element-web-ec0f940ef0e8e3b61078f145f34dc40d1938e6c5-vnan"
)
_HOW: Final = "join it from the dataset's run_scripts (docs/how-to/datasets.md)"


class ProRow(TaskRow):
    """A row of SWE-bench-Pro and the two files that belong to it."""

    fail_to_pass: TestIds = Field(
        validation_alias=AliasChoices("fail_to_pass", "FAIL_TO_PASS"), min_length=1
    )
    pass_to_pass: TestIds = Field(validation_alias=AliasChoices("pass_to_pass", "PASS_TO_PASS"))
    test_files: TestIds = Field((), validation_alias="selected_test_files_to_run")
    dockerhub_tag: Text | None = None
    run_script: Text = ""
    parser_script: Text = ""
    requirements: Text = ""
    interface: Text = ""
    test_timeout_s: Seconds = 3600.0


_READ: Final = "fail_to_pass pass_to_pass FAIL_TO_PASS PASS_TO_PASS selected_test_files_to_run"


def instance(columns: Columns) -> Instance:
    """Make the instance of a row. Raises WrongRowError, which names every wrong field."""
    record = checked(ProRow, columns)
    scripts = (("run_script", record.run_script), ("parser_script", record.parser_script))
    if missing := [Fault(name, f"missing; {_HOW}") for name, text in scripts if not text.strip()]:
        raise WrongRowError(*missing)
    tag = record.dockerhub_tag or _tag(record)
    if not re.fullmatch(r"\w[\w.-]{0,127}", tag):
        raise wrong("dockerhub_tag", "expected the tag of an image")
    task = record.task(
        columns,
        source="swe_pro",
        image=record.image_name or f"{_IMAGES}:{tag}",
        commands=_commands(record),
        read=_READ,
    )
    return replace(
        task,
        problem_statement=_statement(record),
        workdir="/app",
        log_parser="json_results",
        rule=Rule.PASS_SUPERSET,
    )


def _statement(record: ProRow) -> str:
    parts = (
        ("", record.problem_statement),
        ("Requirements:\n", record.requirements),
        ("New interfaces introduced:\n", record.interface),
    )
    return "\n\n".join(head + text.strip() for head, text in parts if text.strip())


def _commands(record: ProRow) -> tuple[str, ...]:
    files = shlex.quote(",".join(record.test_files))
    return (
        "work=$(mktemp -d)",
        here_document('"$work/run_script.sh"', record.run_script),
        here_document('"$work/parser.py"', record.parser_script),
        f'bash "$work/run_script.sh" {files} >"$work/stdout.log" 2>"$work/stderr.log"',
        'tail -c 2000 "$work/stdout.log" "$work/stderr.log"',
        "python=$(command -v python3 || command -v python)",
        '"$python" "$work/parser.py" "$work/stdout.log" "$work/stderr.log" "$work/output.json"',
        # Print the report as the last line of the log.
        "echo; tr '\\n' ' ' <\"$work/output.json\"",
    )


def _tag(record: ProRow) -> str:
    """Return the image tag by upstream's rule, for rows that do not name one."""
    owner, _, name = record.repo.lower().partition("/")
    commit = record.instance_id.removeprefix("instance_")
    if record.instance_id == _WHOLE_NAME:
        return f"{owner}.{name}-{commit}"[:_LONGEST_TAG]
    if record.repo.lower() == _ELEMENT:
        name = "element"
    return f"{owner}.{name}-{commit.removesuffix('-vnan')}"[:_LONGEST_TAG]
