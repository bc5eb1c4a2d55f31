"""Each way in which a row can lie has its check; what breaks beside a row is no finding."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.errors import PrerequisiteError, SandboxError, TaskError
from swe_rollout.grading import audit as audits
from swe_rollout.grading.audit import Audit, NotAudited, audit, audit_dataset
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.wrong_patches import Wrong, WrongPatch
from swe_rollout.sandbox.repository import Patch
from swe_rollout.text.redaction import register
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Expected, Instance, Rule
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus
from unit.grading.project_parts import Project, diff
from unit.grading.test_grader import project as project  # noqa: PLC0414 - a fixture
from unit.grading.test_grader import repo as repo  # noqa: PLC0414 - a fixture
from unit.worker.work_parts import OneSandbox, TableSandbox

PASSED, FAILED, SKIPPED = TestStatus.PASSED, TestStatus.FAILED, TestStatus.SKIPPED
RESOLVED, UNRESOLVED = VerdictStatus.RESOLVED, VerdictStatus.UNRESOLVED
TASK = Instance(
    instance_id="one",
    problem_statement="fix it",
    image="image:1",
    gold_patch="gold",
    expected=Expected(("fixed",), ("kept",)),
)


def verdict(
    status: VerdictStatus = UNRESOLVED, fixed: TestStatus = FAILED, kept: TestStatus = PASSED
) -> Verdict:
    return Verdict(status, TestReport({"fixed": fixed}, {"kept": kept}), (), "the log", 1.5)


GOOD = verdict(RESOLVED, PASSED)


class Played(Grader):
    """Grades as a list says, and records the sandboxes that were asked for."""

    def __init__(self, *gold: Verdict | Exception, **others: Verdict | Exception) -> None:
        super().__init__(OneSandbox(TableSandbox()))
        self.gold = itertools.cycle(gold or (GOOD,))
        self.others = others
        self.names: list[int] = []
        self.running = self.most = 0

    async def _played(self, episode: EpisodeId, found: Verdict | Exception) -> Verdict:
        assert episode.sample not in self.names or episode.instance != TASK.instance_id
        self.names.append(episode.sample)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if isinstance(found, Exception):
            raise found
        return found

    async def grade_reference(self, instance: Instance, *, episode: EpisodeId) -> Verdict:
        del instance
        return await self._played(episode, next(self.gold))

    async def grade_base(
        self, instance: Instance, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        del instance, attempt
        return await self._played(episode, self.others.get("base", verdict()))

    async def grade(
        self, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        del instance, attempt
        empty = verdict(VerdictStatus.EMPTY_PATCH)
        return await self._played(
            episode, self.others.get(patch.text or "empty", verdict() if patch.text else empty)
        )


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sandboxes, wrong patches are their names."""
    monkeypatch.setattr(audits, "_BACKOFF_S", 0.0)
    if "project" in request.fixturenames:
        return

    async def make(_: object, __: Instance) -> tuple[WrongPatch, ...]:
        return tuple(WrongPatch(kind, kind.value) for kind in Wrong)

    monkeypatch.setattr(audits, "make_wrong_patches", make)


async def audited(grader: Grader, task: Instance = TASK, *, runs: int = 3) -> Audit:
    found = await audit(task, grader, runs=runs)
    assert isinstance(found, Audit)
    return found


async def test_a_good_row_passes_every_check_with_its_times() -> None:
    quick, slow = replace(GOOD, duration_s=0.5), replace(GOOD, duration_s=4.0)
    found = await audited(Played(GOOD, quick, slow))
    assert not found.is_bad
    assert found.verdicts == {
        "gold": (RESOLVED,) * 3,
        "base": (UNRESOLVED,),
        "empty": (VerdictStatus.EMPTY_PATCH,),
        **{kind.value: (UNRESOLVED,) for kind in Wrong},
    }
    assert found.gold is not None
    assert (found.gold.min_s, found.gold.median_s, found.gold.max_s) == (0.5, 1.5, 4.0)


async def test_a_gold_patch_that_does_not_resolve_is_found_and_nothing_is_held_against_it() -> None:
    found = await audited(Played(verdict(), delete_tests=GOOD))
    (finding,) = found.findings
    assert finding.check == "gold"
    assert finding.message == "the gold patch did not resolve it, 3 of 3 times: unresolved"
    assert finding.statuses == {"fixed": FAILED}
    assert finding.log_tail == "the log"
    assert "delete_tests" not in found.verdicts


async def test_a_gold_patch_that_resolves_sometimes_is_found_with_its_flaky_tests() -> None:
    found = await audited(Played(GOOD, verdict(), GOOD))
    (finding,) = found.findings
    assert "1 of 3 times" in finding.message
    assert found.flaky == ("fixed",)
    assert found.verdicts["gold"] == (RESOLVED, UNRESOLVED, RESOLVED)


async def test_a_flaky_test_that_decides_nothing_is_recorded_and_the_row_is_good() -> None:
    found = await audited(Played(GOOD, verdict(RESOLVED, PASSED, SKIPPED)))
    assert (found.flaky, found.is_bad) == (("kept",), False)


async def test_a_test_that_fails_once_in_twenty_runs_is_seen() -> None:
    many = [GOOD] * 19
    assert (await audited(Played(*many, verdict()), runs=20)).flaky == ("fixed",)


@pytest.mark.parametrize("check", ["base", "empty", *(kind.value for kind in Wrong)])
@pytest.mark.parametrize("status", [RESOLVED, VerdictStatus.TAMPERED])
async def test_whatever_is_wrong_and_passes_the_tests_is_found_by_its_check(
    check: str, status: VerdictStatus
) -> None:
    passing = replace(GOOD, status=status)
    found = await audited(Played(**{check: passing}))
    (finding,) = found.findings
    assert finding.check == check
    assert finding.statuses == {"fixed": PASSED, "kept": PASSED}
    assert ("is refused as tampering" in finding.message) == (status is VerdictStatus.TAMPERED)
    assert found.bad_row().reason == check


async def test_a_gold_patch_that_counts_as_tampering_is_found_with_the_reason() -> None:
    forged = replace(GOOD, status=VerdictStatus.TAMPERED, integrity=("tampered: forged",))
    found = await audited(Played(forged))
    assert "tampered; tampered: forged" in found.findings[0].message


async def test_a_gold_patch_that_runs_out_of_time_is_not_run_as_often_as_asked() -> None:
    found = await audited(Played(verdict(VerdictStatus.TESTS_TIMED_OUT)), runs=9)
    assert found.verdicts["gold"] == (VerdictStatus.TESTS_TIMED_OUT,)
    assert found.gold is None


async def test_a_row_that_can_not_be_used_is_bad_and_not_a_lost_sandbox() -> None:
    broken = TaskError("its test patch does not apply", why="no such file", retryable=False)
    found = await audited(Played(GOOD, base=broken))
    (finding,) = found.findings
    assert (finding.check, finding.message) == (
        "task",
        "its test patch does not apply: no such file",
    )
    without = await audited(Played(), replace(TASK, gold_patch=" \n"))
    assert without.findings[0].message == "the row has no reference fix"


async def test_a_sandbox_that_is_lost_now_and_then_costs_another_try() -> None:
    grader = Played(SandboxError("lost"), GOOD)
    found = await audited(grader)
    assert not found.is_bad
    assert found.verdicts["gold"] == (RESOLVED,) * 3
    assert len(grader.names) == len(set(grader.names)), "no two sandboxes have one name"


@pytest.mark.parametrize(
    ("error", "tries"),
    [(SandboxError("no room"), 3), (SandboxError("no such image", retryable=False), 1)],
)
async def test_a_row_whose_sandboxes_are_lost_was_not_audited(
    error: SandboxError, tries: int
) -> None:
    grader = Played(error)
    found = await audit(TASK, grader, runs=3)
    assert found == NotAudited("one", str(error))
    assert len(grader.names) == tries


async def test_evidence_is_bounded_and_can_be_written_whatever_the_row_holds() -> None:
    names = tuple(f"\ud800\x1b[2J{n}" * 1000 for n in range(1000))
    huge = Verdict(
        UNRESOLVED, TestReport(dict.fromkeys(names, FAILED), {}), ("x" * 9999,), "\ud800" * 9999
    )
    good = replace(huge, status=RESOLVED, report=TestReport(dict.fromkeys(names, PASSED), {}))
    found = await audited(Played(good, huge, base=good, all_skipped=good))
    assert len(found.bad_row().to_line()) < 256 << 10
    assert len(found.findings) == 3
    assert len(found.flaky) == 200


async def test_a_key_in_a_log_is_not_written_down() -> None:
    register("audit-secret-0123456789")
    leaky = replace(GOOD, log_tail="KEY=audit-secret-0123456789")
    found = await audited(Played(base=leaky))
    assert found.findings[0].log_tail == "KEY=[redacted]"


@pytest.mark.parametrize("rule", Rule)
async def test_the_statuses_in_evidence_are_those_that_the_rule_did_not_ask_for(rule: Rule) -> None:
    found = await audited(Played(verdict(UNRESOLVED, PASSED, FAILED)), replace(TASK, rule=rule))
    assert found.findings[0].statuses == {"kept": FAILED}


async def test_rows_are_audited_few_at_a_time_and_reported_when_they_are_ready() -> None:
    tasks = [replace(TASK, instance_id=f"t{n}") for n in range(20)]
    grader, seen = Played(), list[str]()
    report: Callable[[Audit | NotAudited], None] = lambda each: seen.append(each.instance_id)  # noqa: E731
    await audit_dataset(tasks, grader, runs=1, parallelism=3, on_result=report)
    assert sorted(seen) == sorted(each.instance_id for each in tasks)
    assert grader.most == 3


async def test_what_concerns_all_rows_ends_the_audit() -> None:
    grader = Played(PrerequisiteError("no bubblewrap"))
    with pytest.raises(PrerequisiteError):
        await audit_dataset([TASK], grader, runs=1, parallelism=1, on_result=lambda _: None)


COIN = """\
. ./calc.sh
[ "$(add 1 2)" = 3 ] && echo "PASSED calc::sum" || echo "FAILED calc::sum"
coin=$(od -An -N1 -tu1 /dev/urandom)
[ "$coin" -lt 128 ] && echo "PASSED calc::coin" || echo "FAILED calc::coin"
[ "$(add 0 0)" = 0 ] && echo "PASSED calc::zero" || { echo "FAILED calc::zero"; exit 1; }
"""


async def test_a_test_that_throws_a_coin_is_flaky_in_real_sandboxes(
    project: Project, repo: Path
) -> None:
    patch = diff(repo, **{"tests/run.sh": COIN})
    expected = Expected(("calc::sum", "calc::coin"), ("calc::zero",))
    flaky = project.changed(test_patch=patch, expected=expected)
    found = await audited(flaky.grader, flaky.instance, runs=20)
    assert found.flaky == ("calc::coin",)
    assert {each.check for each in found.findings} == {"gold"}


async def test_a_task_of_shell_scripts_is_clean_and_has_no_python_to_break(
    project: Project,
) -> None:
    found = await audited(project.grader, project.instance, runs=1)
    assert not found.is_bad
    assert set(found.not_applicable) == {"constant_return", "all_skipped", "skipped_calls"}
    assert found.verdicts["delete_tests"] == (UNRESOLVED,)
