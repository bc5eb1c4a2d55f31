"""Rows of other datasets graded for real: the fix resolves them, the base does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.datasets.row_files import Row
from swe_rollout.datasets.swebench import instance_of
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.validate import validate
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule
from swe_rollout.types.verdict import TestStatus, VerdictStatus
from unit.grading.project_parts import EPISODE, diff, git
from unit.grading.test_grader import RIGHT, WRONG
from unit.grading.test_grader import repo as repo  # noqa: PLC0414 - a fixture

SUM = '. ./calc.sh\n[ "$(add 1 2)" = 3 ] && echo "tests/sum.sh::sum PASSED" && exit\n'
SUM += 'echo "tests/sum.sh::sum FAILED"; exit 1\n'
ZERO = 'echo "tests/zero.sh::zero PASSED"\n'


@pytest.fixture
async def grader(tmp_path: Path) -> AsyncIterator[Grader]:
    provider = LocalProvider(LocalSandbox(images=str(tmp_path / "images")), harmless=True)
    yield Grader(provider)
    await provider.aclose()


def smith(repo: Path) -> Instance:
    """Make the task of a bug that a row puts into a project without it."""
    (repo / "calc.sh").write_text(RIGHT)
    (repo / "tests" / "sum.sh").write_text(SUM)
    (repo / "tests" / "zero.sh").write_text(ZERO)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message=clean")
    row = {
        "instance_id": "demo__calc.12345678.sub__1",
        "repo": "swesmith/demo__calc.12345678",
        "patch": diff(repo, **{"calc.sh": WRONG}),
        "problem_statement": "add() subtracts",
        "FAIL_TO_PASS": ["tests/sum.sh::sum"],
        "PASS_TO_PASS": ["tests/zero.sh::zero"],
        "image_name": "test/calc:1",
        "test_cmd": ["sh tests/zero.sh", "sh tests/sum.sh"],
    }
    result = instance_of(Row("row", row))
    assert isinstance(result, Instance), str(result)
    return result


async def test_a_bug_that_is_put_in_is_fixed_by_its_reverse(repo: Path, grader: Grader) -> None:
    task = smith(repo)
    found = await validate(task, grader)
    assert (found.gold.status, found.empty.status) == (
        VerdictStatus.RESOLVED, VerdictStatus.UNRESOLVED
    )  # fmt: skip
    assert found.empty.report.fail_to_pass == {"tests/sum.sh::sum": TestStatus.FAILED}


async def test_tests_that_a_policy_changes_are_those_of_the_base_again(
    repo: Path, grader: Grader
) -> None:
    task = smith(repo)
    cheat = diff(repo, **{"tests/sum.sh": 'echo "tests/sum.sh::sum PASSED"\n'})
    verdict = await grader.grade(task, Patch(cheat), episode=EPISODE)
    assert verdict.status is VerdictStatus.UNRESOLVED


async def test_a_test_that_must_stay_failed_decides_under_an_exact_match(
    repo: Path, grader: Grader
) -> None:
    lines = "echo short test summary info\necho PASSED t.py::a\necho FAILED t.py::b - x"
    task = Instance(
        instance_id="demo-1",
        problem_statement="x",
        image="test/calc:1",
        evaluation=Evaluation(commands=(f"{lines}; . ./calc.sh; [ $(add 1 2) = 3 ] && exit 1",)),
        log_parser="r2e",
        rule=Rule.EXACT_MATCH,
        expected=Expected((), ("a",), {"b": TestStatus.FAILED}),
    )
    patch = Patch(diff(repo, **{"calc.sh": RIGHT}))
    exact = await grader.grade(task, patch, episode=EPISODE)
    assert exact.status is VerdictStatus.RESOLVED
    assert exact.report.others == {"b": TestStatus.FAILED}
    other = replace(task, expected=Expected((), ("a", "b")))
    assert not (await grader.grade(other, patch, episode=EPISODE)).resolved
