"""`validate`: what the table and the JSON say of tasks that can't be graded as they should."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.grading import validate as grading
from swe_rollout.grading.validate import Validation
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus
from swe_rollout.worker import sandboxes
from unit.cli.cli_parts import Cli, Done
from unit.worker.work_parts import TASK


def verdict(*, resolved: bool, **tests: TestStatus) -> Verdict:
    status = VerdictStatus.RESOLVED if resolved else VerdictStatus.UNRESOLVED
    return Verdict(status, TestReport(tests, {}))


PASSED, FAILED = TestStatus.PASSED, TestStatus.FAILED
GOLD = verdict(resolved=True, test_a=PASSED, test_b=PASSED)
BASE = verdict(resolved=False, test_a=FAILED, test_b=FAILED)
FIXED = verdict(resolved=True, test_a=PASSED, **{"test_\x1b[31mb\n": PASSED})
HALF = verdict(resolved=False, test_a=PASSED, test_b=FAILED)


Check = Callable[..., Done]
"""Run `validate` on a row whose checks find this."""


@pytest.fixture
def check(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    (tmp_path / "rows.jsonl").write_text(json.dumps(to_row(TASK)))
    (tmp_path / "my.diff").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandboxes, "open_sandboxes", lambda *_: None)

    def run(result: Validation, *options: str, code: int = 0) -> Done:
        async def checked(
            *_: object, on_result: Callable[[Validation], None], **__: object
        ) -> tuple[Validation, ...]:
            on_result(result)
            return (result,)

        monkeypatch.setattr(grading, "validate_dataset", checked)
        return cli("validate", "rows.jsonl", *options, code=code)

    return run


def test_tests_that_pass_without_a_fix_are_named(check: Check) -> None:
    table = check(Validation("a", GOLD, FIXED), code=1)
    data = check(Validation("a", GOLD, FIXED), "-o", "json", code=1)

    assert table.out.rstrip().endswith("the tests pass without a fix: test_a and 1 more")
    assert "empty: 2 of 2 tests to fix pass without a fix: test_a, test_b" in table.err
    (record,) = data.json["instances"]
    assert record["passing_without_fix"] == ["test_a", "test_\x1b[31mb\n"]
    assert record["check"] == "the tests pass without a fix: test_a and 1 more"


def test_some_that_pass_without_a_fix_are_named_too(check: Check) -> None:
    found = check(Validation("a", GOLD, HALF))

    assert found.out.rstrip().endswith("ok")
    assert "empty: 1 of 2 tests to fix pass without a fix: test_a" in found.err


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Validation("a", GOLD, BASE), "ok"),
        (Validation("a", GOLD, BASE, patch=GOLD), "ok"),
        (Validation("a", GOLD, BASE, patch=BASE), "the patch does not resolve it"),
        (Validation("a", BASE, BASE, patch=GOLD), "the gold patch does not resolve it"),
        (Validation("a", GOLD, BASE, ("/b", "/c")), "the image holds the fix: /b and 1 more"),
    ],
)
def test_the_check_says_why_the_exit_code_is_not_0(
    result: Validation, said: str, check: Check
) -> None:
    options = ["--patch", "my.diff"] if result.patch else []

    assert check(result, *options, code=int(said != "ok")).out.rstrip().endswith(said)
