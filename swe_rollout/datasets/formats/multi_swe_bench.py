"""Read rows of Multi-SWE-bench and Multi-SWE-RL, which list tests by how their results changed.

The images contain the fix and the tests as patches, which an agent's sandbox must not have.
"""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from swe_rollout.datasets.column_text import MAX_TESTS, json_value
from swe_rollout.datasets.row_fields import (
    Columns,
    Commit,
    Diff,
    Fault,
    Image,
    InstanceId,
    Repo,
    RowModel,
    Seconds,
    Statement,
    Text,
    WrongRowError,
    checked,
    extra,
    log_parser,
    shown,
    texts,
    wrong,
)
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule

_NAME = r"[A-Za-z0-9][\w.-]{0,99}"
_HIDDEN: Final = ("fix.patch", "test.patch", "test-run.sh", "fix-run.sh")
_PARSERS = {
    project: parser
    for parser, projects in {
        "surefire": "alibaba/fastjson2 apache/dubbo fasterxml/jackson-core "
        "fasterxml/jackson-databind fasterxml/jackson-dataformat-xml "
        "google/gson",
        "jest": "anuraghazra/github-readme-stats darkreader/darkreader",
        "mocha": "axios/axios expressjs/express mui/material-ui",
        "ctest": "catchorg/catch2 fmtlib/fmt nlohmann/json simdjson/simdjson",
        "gradle": "elastic/logstash googlecontainertools/jib mockito/mockito",
        "automake": "facebook/zstd jqlang/jq",
        "jest_files": "iamkun/dayjs",
        "vitest": "sveltejs/svelte vuejs/core",
        "googletest": "yhirose/cpp-httplib",
    }.items()
    for project in projects.split()
}
"""The parser of each project whose files suggest no parser, or a wrong one."""
_BY_ENDING = {".go": "gotest", ".rs": "cargo", ".java": "surefire", ".kt": "gradle"}


class _Named(RowModel):
    number: int = 0
    title: Text = ""
    body: Text | None = None


class _Base(RowModel):
    sha: Commit


def _tests(value: object) -> tuple[str, ...]:
    found = json_value(value)
    if isinstance(found, dict):
        found = list(found)
    if not isinstance(found, list) or len(found) > MAX_TESTS:
        raise ValueError(f"expected an object with at most {MAX_TESTS} tests; found {shown(value)}")
    return tuple(dict.fromkeys(texts(found, "expected test ids")))


_Tests = Annotated[tuple[str, ...], BeforeValidator(_tests)]


class MultiSweRow(RowModel):
    """A row of Multi-SWE-bench."""

    org: Repo
    repo: Repo
    number: int = Field(ge=0)
    base: _Base
    fix_patch: Diff = ""
    test_patch: Diff
    title: Text = ""
    body: Text | None = None
    resolved_issues: tuple[_Named, ...] = Field(default=(), strict=False)
    fixed_tests: _Tests = ()
    f2p_tests: _Tests = ()
    s2p_tests: _Tests = ()
    n2p_tests: _Tests = ()
    p2p_tests: _Tests = ()
    instance_id: InstanceId | None = None
    image_name: Image | None = None
    log_parser: Text | None = None
    test_timeout_s: Seconds = 1800.0


def instance(columns: Columns) -> Instance:
    """Make the instance of a row. Raises WrongRowError, which names every wrong field."""
    record = checked(MultiSweRow, columns)
    name = record.instance_id or f"{record.org}__{record.repo}-{record.number}"
    fixed = record.f2p_tests + record.s2p_tests + record.n2p_tests or record.fixed_tests
    issue = _issue(record)
    known = frozenset(fixed)
    faults = _faults(record, fixed, issue)
    parser = ""
    try:
        parser = _parser(record)
    except WrongRowError as error:
        faults += error.faults
    if faults:
        raise WrongRowError(*faults)
    checked(_Issue, {"resolved_issues": issue})
    image = f"mswebench/{record.org}_m_{record.repo}:pr-{record.number}".lower()
    return Instance(
        instance_id=name,
        source="multi_swe",
        repo=f"{record.org}/{record.repo}",
        problem_statement=issue,
        image=record.image_name or image,
        base_commit=record.base.sha,
        workdir=f"/home/{record.repo}",
        gold_patch=record.fix_patch,
        test_patch=record.test_patch,
        # The grader has applied both patches; the image's other scripts would apply them again.
        evaluation=Evaluation(commands=("bash /home/run.sh",), timeout_s=record.test_timeout_s),
        log_parser=parser,
        rule=Rule.PASS_SUPERSET,
        expected=Expected(fixed, tuple(t for t in record.p2p_tests if t not in known)),
        hidden_paths=tuple(posixpath.join("/home", each) for each in _HIDDEN),
        extra=extra(columns, MultiSweRow),
    )


class _Issue(RowModel):
    resolved_issues: Statement


def _faults(record: MultiSweRow, fixed: tuple[str, ...], issue: str) -> list[Fault]:
    faults = [
        Fault(field, f"is no name: {shown(text)}")
        for field, text in (("org", record.org), ("repo", record.repo))
        if not re.fullmatch(_NAME, text)
    ]
    if not fixed:
        faults.append(Fault("f2p_tests", "expected at least one test in f2p, s2p or n2p_tests"))
    if not issue:
        faults.append(Fault("resolved_issues", "expected a text; found nothing"))
    return faults


def _issue(record: MultiSweRow) -> str:
    """Join the issues that the fix resolves; without any, use the text of the pull request."""
    texts = (record.resolved_issues) or (_Named(title=record.title, body=record.body),)
    return "\n\n".join(f"{each.title}\n\n{each.body or ''}".strip() for each in texts).strip()


def _parser(record: MultiSweRow) -> str:
    """Return the parser that the row names, else the project's, else the language's."""
    name = f"{record.org}/{record.repo}"
    if record.log_parser is not None:
        return log_parser(record.log_parser, instance_id=name)
    if found := _PARSERS.get(name.lower()):
        return found
    files = re.findall(r"^diff --git a/.* b/(.*)$", record.test_patch, re.MULTILINE)
    endings = (posixpath.splitext(file)[1] for file in files)
    by_ending = next((_BY_ENDING[ending] for ending in endings if ending in _BY_ENDING), None)
    if by_ending is None:
        raise wrong("log_parser", f"missing; it is not known how {shown(name)} prints results")
    return by_ending
