"""Patches are graded again: verdicts that change and tests that are flaky; records never change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from swe_rollout.errors import EpisodeError, GraderError, SandboxError
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.limits import RetrySpec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus
from swe_rollout.worker.regrade import Regrader, RegradeReport, Regrading, flaky_tests, ungradable
from unit.export.export_parts import LOST, failed, trajectory
from unit.worker.work_parts import TASK

P, F = TestStatus.PASSED, TestStatus.FAILED
RETRY = RetrySpec(attempts=2, backoff_seconds=0.001)


def verdict(t: TestStatus = P, u: TestStatus = P) -> Verdict:
    status = VerdictStatus.RESOLVED if t == u == P else VerdictStatus.UNRESOLVED
    return Verdict(status, TestReport({"t": t}, {"u": u}))


@dataclass
class Fake:
    """Grades as told."""

    results: list[Verdict | EpisodeError]
    patches: list[str] = field(default_factory=list)
    attempts: list[tuple[EpisodeId, int]] = field(default_factory=list)

    async def grade(
        self, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        assert instance is TASK
        self.patches.append(patch.text)
        self.attempts.append((episode, attempt))
        result = self.results.pop(0)
        if isinstance(result, EpisodeError):
            raise result
        return result


async def regrade(
    *results: Verdict | EpisodeError, found: Trajectory | None = None
) -> tuple[Regrading, Fake]:
    fake = Fake(list(results))
    grader = Grader(None)  # type: ignore[arg-type]  # starts no sandbox
    grader.grade = fake.grade  # type: ignore[method-assign]
    times = sum(not (isinstance(each, EpisodeError) and each.retryable) for each in results)
    regrader = Regrader(grader, max(times, 1), RETRY)
    return await regrader.regrade(found or trajectory(), TASK), fake


async def test_the_same_verdicts_are_no_change() -> None:
    found, fake = await regrade(verdict(), verdict())
    assert not found.changed
    assert found.unstable == ()
    assert fake.patches == [trajectory().patch] * 2
    assert len(set(fake.attempts)) == 2
    assert fake.attempts[0][0].job.startswith("regrade-")


async def test_a_test_that_flips_is_found_with_its_rate() -> None:
    found, _ = await regrade(verdict(), verdict(t=F), verdict(), verdict(t=F))
    assert found.changed
    (test,) = found.unstable
    assert (test.name, test.recorded, test.statuses) == ("t", P, (P, F, P, F))
    assert test.flake_rate == pytest.approx(2 / 5)


async def test_verdicts_that_all_differ_from_the_record_are_a_change() -> None:
    found, _ = await regrade(verdict(u=F))
    assert found.changed
    assert found.unstable[0].name == "u"


async def test_verdicts_without_tests_say_nothing_about_tests() -> None:
    late = Verdict(VerdictStatus.TESTS_TIMED_OUT, TestReport({"t": TestStatus.MISSING}, {}))
    found, _ = await regrade(verdict(), late)
    assert found.changed
    assert found.unstable == ()


async def test_a_lost_sandbox_costs_another_try() -> None:
    found, fake = await regrade(SandboxError("lost"), verdict())
    assert (found.statuses, found.failures) == ((VerdictStatus.RESOLVED,), ())
    assert len({attempt for _, attempt in fake.attempts}) == 2


async def test_a_grading_that_breaks_is_no_verdict() -> None:
    found, _ = await regrade(verdict(), GraderError("bad", retryable=False), verdict())
    assert len(found.statuses) == 2
    assert found.failures == ("bad",)
    assert not found.changed


async def test_a_record_without_a_verdict_changes_only_against_itself() -> None:
    ungraded = replace(trajectory(), verdict=None)
    found, _ = await regrade(verdict(), verdict(), found=ungraded)
    assert (found.recorded, found.changed) == (None, False)
    found, _ = await regrade(verdict(), verdict(t=F), found=ungraded)
    assert found.changed


async def test_what_holds_no_patch_is_skipped_and_says_why() -> None:
    found, fake = await regrade(verdict(), found=failed(trajectory()))
    assert found.skipped == "it failed before its diff was made"
    assert fake.patches == []
    no_diff = Verdict(VerdictStatus.PATCH_FAILED, TestReport({}, {}))
    assert ungradable(replace(trajectory(), patch="", verdict=no_diff))
    assert not ungradable(replace(trajectory(), patch=""))
    assert not ungradable(replace(trajectory(), failure=LOST))


async def test_the_report_lists_episodes_in_order_and_flaky_tests_by_rate() -> None:
    one, _ = await regrade(verdict(), verdict(t=F), found=trajectory("a", 1))
    two, _ = await regrade(verdict(), verdict(u=F), verdict(u=F), found=trajectory("a", 0))
    report = RegradeReport(3, [one, two])
    told = report.to_dict()
    json.dumps(told)
    assert told["complete"] is False
    assert (told["graded"], told["changed"], told["broken"]) == (2, 2, 0)
    episodes = told["episodes"]
    assert isinstance(episodes, list)
    assert [each["episode"] for each in episodes] == ["demo/a/0", "demo/a/1"]
    worst, next_ = flaky_tests([one, two])
    assert (worst.name, worst.rate) == ("u", 0.5)
    assert next_.name == "t"
    assert next_.rate == pytest.approx(1 / 3)
