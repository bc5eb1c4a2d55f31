"""Read rows of R2E-Gym: the fix as a parsed commit, and each test's status after the fix.

The images contain the tests in `/r2e_tests` and the command that runs them in `run_tests.sh`; an
agent's sandbox has neither.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from swe_rollout.datasets.column_text import MAX_TESTS, json_value
from swe_rollout.datasets.row_fields import (
    Columns,
    Commit,
    Image,
    Repo,
    RowModel,
    Statement,
    checked,
    extra,
    shown,
    wrong,
)
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule
from swe_rollout.types.verdict import TestStatus

_COLOUR = re.compile(r"\x1b\[\d{1,4}m")
_STATUSES = (TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR)
_RUN: Final = "rm -rf r2e_tests && cp -r /r2e_tests r2e_tests && bash run_tests.sh"
_SIGNS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}


def _issue(text: str) -> str:
    inner = text.partition("[ISSUE]")[2].rpartition("[/ISSUE]")[0]
    return inner.strip() or text


def _expected(value: object) -> dict[str, TestStatus]:
    found = json_value(value)
    if not isinstance(found, dict) or not found:
        raise ValueError(f"expected an object of test id to status; found {shown(value)}")
    if len(found) > MAX_TESTS:
        raise ValueError(f"has {len(found)} tests; at most {MAX_TESTS} are taken")
    statuses: dict[str, TestStatus] = {}
    for test, status in found.items():
        if status not in _STATUSES:
            raise ValueError(f"expected PASSED, FAILED or ERROR; found {shown(status)}")
        statuses[_COLOUR.sub("", test).split(" - ")[0].strip()] = TestStatus(status)
    return statuses


def _patch(value: object) -> str:
    try:
        return "".join(_file_diffs(json_value(value)))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"expected a parsed commit with `file_diffs`; {error!r:.80}") from None


class R2eRow(RowModel):
    """A row of R2E-Gym."""

    repo_name: Repo
    docker_image: Image
    commit_hash: Commit
    problem_statement: Annotated[Statement, AfterValidator(_issue)]
    expected: Annotated[dict[str, TestStatus], BeforeValidator(_expected)] = Field(
        alias="expected_output_json"
    )
    patch: Annotated[str, BeforeValidator(_patch)] = Field("", alias="parsed_commit_content")
    execution_result_content: object = None


def instance(columns: Columns) -> Instance:
    """Make the instance of a row. Raises WrongRowError, which names every wrong field."""
    record = checked(R2eRow, columns)
    name = f"{posixpath.basename(record.repo_name)}-{record.commit_hash}"
    if not re.fullmatch(r"[\w.+-]{1,200}", name):
        raise wrong("repo_name", f"is no name: {shown(record.repo_name)}")
    passed = [test for test, s in record.expected.items() if s is TestStatus.PASSED and test]
    known = frozenset(passed)
    before = set(_passed_before(record.execution_result_content))
    fixed = tuple(test for test in passed if before and test not in before)
    return Instance(
        instance_id=name,
        source="r2e",
        repo=record.repo_name,
        problem_statement=record.problem_statement,
        image=record.docker_image,
        gold_patch=record.patch,
        evaluation=Evaluation(commands=(_RUN,), timeout_s=300.0),
        log_parser="r2e",
        rule=Rule.EXACT_MATCH,
        expected=Expected(
            fixed,
            tuple(test for test in passed if not before or test in before),
            {test: s for test, s in record.expected.items() if test not in known},
        ),
        hidden_paths=("/r2e_tests", "r2e_tests", "run_tests.sh"),
        extra=extra(columns, R2eRow),
    )


def _passed_before(content: object) -> Iterator[str]:
    """Yield the tests that passed before the fix, if the row holds the log of that run."""
    match json_value(content):
        case {"old_commit_res_stdout": str(log)}:
            for line in _COLOUR.sub("", log).partition("short test summary info")[2].split("\n"):
                if line.startswith("PASSED "):
                    yield ".".join(line.split("::")[1:]).split(" - ")[0].strip()
        case _:
            pass


def _file_diffs(commit: object) -> Iterator[str]:
    """Yield the commit's changes to Python files other than tests, as diffs."""
    if not isinstance(commit, dict):
        raise TypeError(f"found {shown(commit)}")
    for file in commit["file_diffs"]:
        path = file["header"]["file"]["path"]
        if _is_changed_source(path) and not file.get("is_binary_file"):
            yield f"diff --git a/{path} b/{path}\n"
            yield from _headers(file)
            yield from _hunks(file.get("hunks") or [])


def _headers(file: dict[str, dict[str, str]]) -> Iterator[str]:
    misc = file["header"].get("misc_line")
    if misc:
        yield f"{misc}\n"
    index = file.get("index_line")
    if index:
        mode = f" {index['mode']}" if index["mode"] else ""
        yield f"index {index['old_commit_hash']}..{index['new_commit_hash']}{mode}\n"
    old, new = file.get("minus_file"), file.get("plus_file")
    if old and new:
        yield f"--- {old['path']}\n+++ {new['path']}\n"


def _hunks(hunks: list[dict[str, dict[str, object]]]) -> Iterator[str]:
    for hunk in hunks:
        descriptor = hunk["descriptor"]
        ranges = " ".join(
            sign + _range(descriptor[name])
            for sign, name in (("-", "old_range"), ("+", "new_range"))
        )
        section = f" {descriptor['section']}" if descriptor.get("section") else ""
        yield f"@@ {ranges} @@{section}\n"
        lines = hunk["line_group"]["all_lines"]
        if not isinstance(lines, list):
            raise TypeError(f"found {shown(lines)}")
        for line in lines:
            yield f"{_SIGNS[line['type']]}{line['content']}\n"


def _range(value: object) -> str:
    match value:
        case {"start": int(start), "length": int(length)}:
            return f"{start},{length}"
        case {"start": int(start)}:
            return str(start)
        case _:
            raise TypeError(f"found {shown(value)}")


def _is_changed_source(path: str) -> bool:
    *folders, name = path.split("/")
    is_test = name.startswith("test_") or name.endswith("_test.py")
    in_tests = not {"test", "tests"}.isdisjoint(map(str.lower, folders))
    return name.endswith(".py") and not is_test and not in_tests
