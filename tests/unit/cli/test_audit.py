"""`audit`: what it prints, which exit code it has, and that no row reaches the terminal raw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from swe_rollout.errors import UnreachableError
from swe_rollout.grading.audit import Audit, NotAudited
from swe_rollout.grading.grader import Grader
from swe_rollout.types.bad_rows import BadRow, Finding
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestStatus, VerdictStatus
from unit.cli.cli_parts import Cli, Done
from unit.worker.work_parts import OneSandbox, TableSandbox

EVIL = "\x1b[2J\x1b]0;title\x07red"
TASKS = [
    Instance(instance_id=name, problem_statement="fix it", image="image:1")
    for name in ("good", "evil", "lost")
]


def tasks() -> list[Instance]:
    return TASKS


def result(instance: Instance, runs: int) -> Audit | NotAudited:
    if instance.instance_id == "lost":
        return NotAudited("lost", f"no room {EVIL}")
    findings = (Finding("base", EVIL, {EVIL: TestStatus.PASSED}, EVIL),)
    return Audit(
        instance.instance_id,
        instance.digest,
        runs,
        {"gold": (VerdictStatus.RESOLVED,) * runs, "base": (VerdictStatus.RESOLVED,)},
        findings=findings if instance.instance_id == "evil" else (),
        flaky=(EVIL,),
        odds=0.025,
        unproven="what its tests expect can be guessed" if instance.instance_id == "good" else "",
    )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The rows that each audit was asked for; a row of the name `down` ends it."""
    asked: list[list[str]] = []

    async def play(
        instances: Sequence[Instance],
        _: Grader,
        *,
        runs: int,
        parallelism: int,
        on_result: Callable[[Audit | NotAudited], None],
    ) -> None:
        del parallelism
        asked.append([each.instance_id for each in instances])
        for each in instances:
            if each.instance_id == "down":
                raise UnreachableError("no cluster")
            on_result(result(each, runs))

    monkeypatch.setattr("swe_rollout.grading.audit.audit_dataset", play)
    monkeypatch.setattr(
        "swe_rollout.worker.sandboxes.open_sandboxes", lambda *_: OneSandbox(TableSandbox())
    )
    monkeypatch.setattr(f"{__name__}.TASKS", TASKS[:])
    return asked


Audited = Callable[..., Done]


@pytest.fixture
def audit(cli: Cli, tmp_path: Path) -> Audited:
    def run(*arguments: str, code: int) -> Done:
        out = ("--out", str(tmp_path / "q.jsonl"))
        return cli("audit", f"{__name__}:tasks", *out, *arguments, code=code)

    return run


def test_bad_rows_are_written_and_exit_1_without_a_control_character(
    played: list[list[str]], audit: Audited, tmp_path: Path
) -> None:
    done = audit(code=1)
    assert played == [["good", "evil", "lost"]]
    assert "3/3" in done.out
    assert "2 of 3 rows audited: 1 bad" in done.err
    assert "1 that a forgery could resolve, too; 1 not audited" in done.err
    assert "1 in 40" in done.out
    assert not set("\x1b\x07") & set(done.out + done.err)
    (line,) = (tmp_path / "q.jsonl").read_bytes().splitlines()
    assert BadRow.of_line(line).instance_id == "evil"
    assert not set(b"\x1b\x07") & set(line)


def test_what_is_known_is_not_audited_again_and_what_was_lost_is(
    played: list[list[str]], audit: Audited
) -> None:
    audit(code=1)
    found = audit("-o", "json", code=1).json
    assert played[1] == ["lost"]
    assert [each["instance_id"] for each in found["instances"]] == ["good", "evil"]
    assert [each["instance_id"] for each in found["not_audited"]] == ["lost"]
    assert found["instances"][1]["findings"][0]["check"] == "base"


def test_good_rows_exit_0_with_an_empty_quarantine_file(
    played: list[list[str]], audit: Audited, tmp_path: Path
) -> None:
    audit("--include", "good", "--runs", "7", code=0)
    assert (tmp_path / "q.jsonl").read_bytes() == b""
    assert played == [["good"]]


def test_an_audit_that_ends_early_keeps_what_is_done_and_says_how_to_go_on(
    played: list[list[str]], audit: Audited, tmp_path: Path
) -> None:
    TASKS[2] = Instance(instance_id="down", problem_statement="fix it", image="image:1")
    assert "the audit is not complete: run it again to go on" in audit(code=4).err
    assert b'"evil"' in (tmp_path / "q.jsonl").read_bytes()
    assert len(played) == 1
