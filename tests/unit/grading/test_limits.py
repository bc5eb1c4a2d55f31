"""A grading sandbox that its tests ended: whose doing it is, by a run over the gold patch.

Issue 16, point 4.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swe_rollout.errors import GraderError, SandboxDestroyedError, SandboxError
from swe_rollout.grading import grader
from swe_rollout.grading.proof import OncePerInstance, require_within
from swe_rollout.grading.run import RunResult, without_tests
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session.session import Session
from swe_rollout.types.instance import FolderTask, Instance
from swe_rollout.types.verdict import TestReport, Verdict, VerdictStatus
from unit.grading.project_parts import Project, diff
from unit.grading.test_grader import RIGHT, project, repo

__all__ = ["project", "repo"]  # fixtures

TASK = Instance(
    instance_id="one", problem_statement="fix it", image="image:1", gold_patch="+ gold\n"
)
KILLS = "add() { kill -9 $$; }\n"
EVIDENCE = "its processes reached their 512 bytes of memory"


def ends_for(monkeypatch: pytest.MonkeyPatch, *words: str, error: type[SandboxError]) -> list[str]:
    """End the sandbox under tests of code with one of these words; return their code."""
    run, seen = Session.exec, []

    async def exec_or_end(session: Session, command: str, **options: Any) -> ExecResult:
        if "sh tests/run.sh" in str(command):
            code = (await session.read_file("calc.sh")).decode()
            seen.append(code)
            if any(word in code for word in words):
                raise error("the sandbox was ended by what ran in it", why=EVIDENCE)
        return await run(session, command, **options)

    monkeypatch.setattr(Session, "exec", exec_or_end)
    return seen


async def test_a_patch_whose_tests_exceed_the_memory_is_unresolved(
    project: Project, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = ends_for(monkeypatch, "huge", error=SandboxDestroyedError)
    patch = diff(repo, **{"calc.sh": f"# huge\n{RIGHT}"})
    verdict = await project.grade(patch)
    assert verdict.status is VerdictStatus.UNRESOLVED
    (finding,) = verdict.integrity
    assert finding == f"the tests of the patch ended the grading sandbox: {EVIDENCE}"
    assert seen == [f"# huge\n{RIGHT}", RIGHT], "the tests ran once more, over the gold patch"
    await project.grade(patch)
    assert len(seen) == 3, "what the gold patch shows is measured once"


async def test_tests_that_never_fit_are_the_platforms(
    project: Project, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_for(monkeypatch, "add()", error=SandboxDestroyedError)
    with pytest.raises(GraderError, match="do not fit into the grading sandbox") as caught:
        await project.grade(diff(repo, **{"calc.sh": f"# huge\n{RIGHT}"}))
    assert "with the gold patch" in caught.value.why
    assert not caught.value.retryable


async def test_a_patch_that_ends_a_check_of_its_success_is_not_resolved(
    project: Project, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor masked: the first run resolved the task, and a later one was ended."""
    run, runs = Session.exec, []

    async def second_ends(session: Session, command: str, **options: Any) -> ExecResult:
        if "sh tests/run.sh" in str(command):
            code = (await session.read_file("calc.sh")).decode()
            runs.append(code)
            if code != RIGHT and runs.count(code) > 1:
                raise SandboxDestroyedError("the sandbox was ended", why=EVIDENCE)
        return await run(session, command, **options)

    monkeypatch.setattr(Session, "exec", second_ends)
    code = f"# {RIGHT}{RIGHT}"
    verdict = await project.grade(diff(repo, **{"calc.sh": code}))
    if runs.count(code) > 1:
        assert verdict.status is VerdictStatus.UNRESOLVED
    else:
        assert verdict.status is VerdictStatus.RESOLVED


async def test_a_sandbox_that_is_lost_without_evidence_is_the_platforms(
    project: Project, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = ends_for(monkeypatch, "huge", error=SandboxError)
    with pytest.raises(SandboxError) as caught:
        await project.grade(diff(repo, **{"calc.sh": f"# huge\n{RIGHT}"}))
    assert caught.value.retryable
    assert len(seen) == 1


async def test_tests_that_were_killed_are_the_patchs_where_the_gold_patch_is_not(
    project: Project, repo: Path
) -> None:
    verdict = await project.grade(diff(repo, **{"calc.sh": KILLS}))
    assert not verdict.resolved
    assert verdict.status is VerdictStatus.NO_TESTS_RAN


async def test_tests_that_are_always_killed_show_nothing_of_a_patch(
    project: Project, repo: Path
) -> None:
    gold = diff(repo, **{"calc.sh": f"# gold\n{KILLS}"})
    with pytest.raises(GraderError, match="do not fit"):
        await project.changed(gold_patch=gold).grade(diff(repo, **{"calc.sh": KILLS}))


def result(broke_off: str = "") -> RunResult:
    return replace(without_tests(TASK, VerdictStatus.UNRESOLVED, ""), broke_off=broke_off)


async def test_a_control_that_failed_is_made_again() -> None:
    """The platform may have been at fault, or be larger now."""
    controls, ends = OncePerInstance[None](), iter(["the tests ended as by a signal", ""])

    async def run(patch: str, **_: object) -> RunResult:
        del patch
        return result(next(ends))

    with pytest.raises(GraderError, match="as by a signal"):
        await controls.of(TASK, partial(require_within, TASK, run, EVIDENCE))
    await controls.of(TASK, partial(require_within, TASK, run, EVIDENCE))


async def test_a_control_whose_sandbox_is_lost_decides_nothing() -> None:
    async def run(patch: str, **_: object) -> RunResult:
        del patch
        raise SandboxError("the pod is gone", why="evicted")

    with pytest.raises(SandboxError) as caught:
        await require_within(TASK, run, EVIDENCE)
    assert caught.value.retryable


@pytest.mark.parametrize("base_fits", [True, False])
async def test_a_task_of_folders_is_compared_with_its_untouched_base(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    base_fits: bool,  # noqa: FBT001 - parametrized
) -> None:
    class Huge:
        def __init__(self, instance: Instance, delta: str, *_: object, **__: object) -> None:
            self._instance, self._delta = instance, delta

        async def verdict(self, _: object) -> Verdict:
            if self._delta or not base_fits:
                raise SandboxDestroyedError("the sandbox was ended", why=EVIDENCE)
            return Verdict(VerdictStatus.UNRESOLVED, TestReport({}, {}))

    monkeypatch.setattr(grader, "FolderRun", Huge)
    task = project.changed(folder=FolderTask(kept=("/app",)))
    if base_fits:
        verdict = await task.grade("delta")
        assert verdict.status is VerdictStatus.UNRESOLVED
        assert EVIDENCE in verdict.integrity[0]
    else:
        with pytest.raises(GraderError, match="untouched base"):
            await task.grade("delta")
