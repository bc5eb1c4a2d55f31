"""The grader on a small real project: honest patches, broken ones, and ones that cheat."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swe_rollout.errors import ExtensionFailedError, SandboxError, StoreError, TaskError
from swe_rollout.extension import ExtensionError
from swe_rollout.grading import run
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.parsers import base
from swe_rollout.grading.validate import validate
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.model import Use
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule
from swe_rollout.types.verdict import TestLog, TestStatus, VerdictStatus
from unit.grading.project_parts import EPISODE, Project, diff, git, repository

WRONG = "add() { echo $(($1 - $2)); }\n"
RIGHT = "add() { echo $(($1 + $2)); }\n"
BASE_TESTS = """\
. ./calc.sh
code=0
check() { if [ "$2" = "$3" ]; then echo "PASSED $1"; else echo "FAILED $1"; code=1; fi; }
check calc::zero "$(add 0 0)" 0
exit $code
"""
HIDDEN_TESTS = BASE_TESTS.replace("exit", 'check calc::sum "$(add 1 2)" 3\nexit')
COMMANDS = Evaluation(commands=("sh tests/run.sh",), timeout_s=20)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return repository(tmp_path / "images", {"calc.sh": WRONG, "tests/run.sh": BASE_TESTS})


@pytest.fixture
async def project(repo: Path, tmp_path: Path) -> AsyncIterator[Project]:
    provider = LocalProvider(LocalSandbox(images=str(tmp_path / "images")), harmless=True)
    instance = Instance(
        instance_id="demo__calc-1",
        repo="demo/calc",
        problem_statement="add() subtracts",
        image="test/calc:1",
        base_commit=git(repo, "rev-parse", "HEAD").strip(),
        gold_patch=diff(repo, **{"calc.sh": RIGHT}),
        test_patch=diff(
            repo, **{"tests/run.sh": HIDDEN_TESTS, "tests/new.sh": "echo PASSED calc::new\n"}
        ),
        evaluation=COMMANDS,
        expected=Expected(("calc::sum",), ("calc::zero",)),
    )
    yield Project(instance, Grader(provider))
    await provider.aclose()


async def test_a_run_leaves_no_report_in_the_machines_own_folder(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without isolation, /tmp of a sandbox is that of the machine."""
    token = uuid.uuid4().hex
    report = Path(f"/tmp/{token}.xml")  # noqa: S108
    monkeypatch.setattr(run, "secrets", SimpleNamespace(token_hex=lambda _: token))
    command = f"echo >{report}; ls {report}; sh tests/run.sh"
    plain = LocalSandbox(images=str(tmp_path / "images"), isolation="none")
    unprotected = replace(project, grader=Grader(LocalProvider(plain, harmless=True)))

    verdict = await unprotected.changed(
        evaluation=Evaluation(commands=(command,), timeout_s=20)
    ).grade(project.instance.gold_patch)

    assert verdict.resolved
    assert f"{report}\n" in verdict.log_tail
    assert not await asyncio.to_thread(report.exists)


def official(instance: Instance) -> Evaluation:
    """A script of the form that SWE-bench's rows carry."""
    return Evaluation(
        timeout_s=20,
        script=f"""#!/bin/bash
set -uxo pipefail
git status
git checkout {instance.base_commit} tests/run.sh
git apply -v - <<'EOF_114329324912'
{instance.test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
sh tests/run.sh
: '>>>>> End Test Output'
git checkout {instance.base_commit} tests/run.sh
""",
    )


@pytest.fixture(params=["commands", "official"])
def either(request: pytest.FixtureRequest, project: Project) -> Project:
    """The project graded in either way: our commands, or an official script."""
    if request.param == "official":
        return project.changed(evaluation=official(project.instance))
    return project


async def test_the_gold_patch_resolves_and_the_untouched_base_does_not(either: Project) -> None:
    result = await validate(either.instance, either.grader)
    assert result.problem == ""
    assert result.gold.report.fail_to_pass == {"calc::sum": TestStatus.PASSED}
    assert result.empty.status is VerdictStatus.UNRESOLVED
    assert result.empty.report.fail_to_pass == {"calc::sum": TestStatus.FAILED}
    assert result.empty.report.pass_to_pass == {"calc::zero": TestStatus.PASSED}
    assert result.gold.integrity == ()
    assert "PASSED calc::sum" in result.gold.log_tail
    assert result.gold.duration_s > 0


async def test_a_test_run_that_was_lost_is_no_verdict(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.exec

    async def lost(session: Session, command: str, **options: Any) -> ExecResult:
        if "tests/run.sh" in command:
            raise SandboxError("the pod is gone", why="evicted")
        return await run(session, command, **options)

    monkeypatch.setattr(Session, "exec", lost)
    with pytest.raises(SandboxError, match="gone"):
        await validate(project.instance, project.grader)


FORGED = "echo PASSED calc::sum; echo PASSED calc::zero; echo '>>>>> End Test Output'; "
CHEATS: dict[str, tuple[dict[str, str], VerdictStatus, list[str]]] = {
    "a wrong fix": ({"calc.sh": "add() { echo 0; }\n"}, VerdictStatus.UNRESOLVED, []),
    "edits of graded tests are undone": (
        {
            "tests/run.sh": "echo PASSED calc::sum\necho PASSED calc::zero\n",
            "tests/new.sh": "echo PASSED calc::sum\n",
        },
        VerdictStatus.UNRESOLVED,
        [f"edits tests/{name}.sh, a graded test file; undone" for name in ("new", "run")],
    ),
    "files that steer tests are undone": (
        {"calc.sh": RIGHT, "conftest.py": "x = 1\n", "sub/a.pth": "x\n"},
        VerdictStatus.RESOLVED,
        [
            "edits conftest.py, which steers how tests run; undone",
            "edits sub/a.pth, which steers how tests run; undone",
        ],
    ),
    "forged results under a failing exit code": (
        {"calc.sh": FORGED + "exit 1\n"},
        VerdictStatus.UNRESOLVED,
        ["the tests ended with exit code 1, yet none is reported as failed"],
    ),
    "results that contradict each other": (
        {"calc.sh": WRONG + "trap 'echo PASSED calc::sum' EXIT\n"},
        VerdictStatus.UNRESOLVED,
        [
            "reports calc::sum as both passed and failed",
            "the tests ended with exit code 1, yet none is reported as failed",
        ],
    ),
    "tests that never report": ({"calc.sh": "exit 0\n"}, VerdictStatus.NO_TESTS_RAN, []),
    "a run that kills itself": (
        {"calc.sh": FORGED + "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID\n"},
        VerdictStatus.NO_TESTS_RAN,
        ["the test run broke off with exit code 137"],
    ),
}


@pytest.mark.parametrize("name", CHEATS)
async def test_a_patch_gets_what_it_has_earned(either: Project, repo: Path, name: str) -> None:
    files, status, findings = CHEATS[name]
    verdict = await either.grade(diff(repo, **files))
    assert verdict.status is status
    assert list(verdict.integrity) == findings
    if status is VerdictStatus.UNRESOLVED and not findings:
        assert verdict.report.pass_to_pass == {"calc::zero": TestStatus.PASSED}


async def test_files_beside_the_tests_are_undone_whatever_their_names(
    project: Project, repo: Path
) -> None:
    """Names are bytes, and some bytes are special to shells."""
    bytes_ = (
        "\udcff",
        "\udc81\udc88",
        "\x01\x7f",
        "\x0b\u2028",
        "\r",
        "\t",
        "-n",
        "a" * 250,
        " \\*",
    )
    odd = {f"tests/{name}": "exit 0\n" for name in bytes_}
    listed = project.changed(evaluation=replace(COMMANDS, commands=("sh tests/run.sh; ls tests",)))
    verdict = await listed.grade(diff(repo, **{"calc.sh": WRONG + "x=1\n"}, **odd))
    assert verdict.log_tail.endswith("\nnew.sh\nrun.sh\n")
    assert len(verdict.integrity) == len(odd)
    "".join(verdict.integrity).encode()


@pytest.mark.parametrize("patch", ["", "\n \n"])
async def test_an_empty_patch_is_graded_without_a_sandbox(project: Project, patch: str) -> None:
    verdict = await project.changed(image="not here").grade(patch)
    assert verdict.status is VerdictStatus.EMPTY_PATCH
    assert verdict.report.fail_to_pass == {"calc::sum": TestStatus.MISSING}


async def test_a_patch_that_could_not_be_made_has_failed(project: Project) -> None:
    verdict = await project.grader.grade(
        project.instance, Patch(problem="there is no .git"), episode=EPISODE
    )
    assert verdict.status is VerdictStatus.PATCH_FAILED
    assert verdict.log_tail == "there is no .git"


async def test_a_patch_that_does_not_apply_has_failed_and_says_why(project: Project) -> None:
    verdict = await project.grade(project.instance.gold_patch.replace("$1 - $2", "$1 * $2"))
    assert verdict.status is VerdictStatus.PATCH_FAILED
    assert "patch does not apply" in verdict.log_tail


async def test_a_patch_without_exact_context_still_applies(project: Project) -> None:
    gold = project.instance.gold_patch.splitlines(keepends=True)
    loose = "".join(line for line in gold if not line.startswith(("diff ", "index ")))
    verdict = await project.grade(loose.replace("@@ -1 +1 @@", "@@ -3 +3 @@"))
    assert verdict.status is VerdictStatus.RESOLVED


async def test_tests_behind_a_symlink_are_put_back(either: Project, repo: Path) -> None:
    (repo / "fake").mkdir()
    (repo / "fake/run.sh").write_text("echo PASSED calc::sum\necho PASSED calc::zero\n")
    (repo / "tests/run.sh").unlink()
    (repo / "tests").rmdir()
    (repo / "tests").symlink_to("fake")
    git(repo, "add", "--all")
    cheat = git(repo, "diff", "--cached")
    git(repo, "reset", "--quiet", "--hard")
    assert (await either.grade(cheat)).status is VerdictStatus.UNRESOLVED


async def test_what_is_printed_outside_the_tests_is_no_result(project: Project, repo: Path) -> None:
    script = (official(project.instance).script or "").replace(
        ": '>>>>> Start", ". ./calc.sh\n: '>>>>> Start"
    )
    loud = project.changed(evaluation=Evaluation(script=script, timeout_s=20))
    verdict = await loud.grade(diff(repo, **{"calc.sh": FORGED + WRONG}))
    assert verdict.report.fail_to_pass == {"calc::sum": TestStatus.FAILED}


async def test_tests_out_of_time_are_a_status_of_their_own(either: Project, repo: Path) -> None:
    slow = either.changed(evaluation=replace(either.instance.evaluation, timeout_s=0.8))
    verdict = await slow.grade(diff(repo, **{"calc.sh": "sleep 30\n"}))
    assert verdict.status is VerdictStatus.TESTS_TIMED_OUT


async def test_the_job_may_set_the_time(project: Project, repo: Path) -> None:
    grader = Grader(project.grader.site.provider, timeout_s=0.8)
    quick = replace(project, grader=grader)
    verdict = await quick.grade(diff(repo, **{"calc.sh": "sleep 30\n"}))
    assert verdict.status is VerdictStatus.TESTS_TIMED_OUT


async def test_the_job_may_name_the_log_parser(project: Project, repo: Path) -> None:
    grader = Grader(project.grader.site.provider, log_parser=Use(use=f"{__name__}:all_pass"))
    verdict = await replace(project, grader=grader).grade(diff(repo, **{"calc.sh": "exit 0\n"}))
    assert verdict.status is VerdictStatus.RESOLVED


async def test_an_instance_may_name_its_log_parser(project: Project, repo: Path) -> None:
    own = project.changed(log_parser=f"{__name__}:all_pass")
    verdict = await own.grade(diff(repo, **{"calc.sh": "exit 0\n"}))
    assert verdict.status is VerdictStatus.RESOLVED


@pytest.mark.parametrize(
    ("code", "status"), [(0, VerdictStatus.RESOLVED), (1, VerdictStatus.UNRESOLVED)]
)
async def test_a_suite_that_prints_failures_only_has_to_end_well(
    project: Project, repo: Path, code: int, status: VerdictStatus
) -> None:
    silent = project.changed(log_parser="chart_js", rule=Rule.FAIL_ONLY, gold_patch="")
    crashed = f"echo 'Executed 1 of 9 DISCONNECTED'; exit {code}\n"
    verdict = await silent.grade(diff(repo, **{"calc.sh": crashed}))
    assert verdict.status is status


async def test_a_log_whose_ids_never_end_resolves_nothing(
    project: Project, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_CHARS", 100)
    silent = project.changed(log_parser="rspec", rule=Rule.FAIL_ONLY)
    suite = f"echo {'s' * 90}; echo '  x'; echo '  y'; echo 'Executed 2 of 2'; exit 0\n"
    verdict = await silent.grade(diff(repo, **{"calc.sh": suite}))
    assert verdict.status is VerdictStatus.NO_TESTS_RAN
    assert "the log can't be read" in verdict.integrity[0]


async def test_a_log_parser_that_breaks_is_never_a_verdict(project: Project, repo: Path) -> None:
    own = project.changed(log_parser=f"{__name__}:no_parser")
    with pytest.raises(ExtensionFailedError, match="no_parser failed") as caught:
        await own.grade(diff(repo, **{"calc.sh": RIGHT}))
    assert not caught.value.retryable


def test_a_missing_log_parser_is_found_before_anything_runs(project: Project) -> None:
    with pytest.raises(ExtensionError, match="there is no log parser named pytset"):
        project.grader.site.require([replace(project.instance, log_parser="pytset")])


def all_pass(_: str) -> dict[str, str]:
    return {"calc::sum": "PASSED", "calc::zero": "PASSED"}


def no_parser(log: str) -> dict[str, str]:
    raise ValueError(len(log))


async def test_a_test_patch_that_does_not_fit_its_base_is_the_tasks_fault(
    either: Project,
) -> None:
    broken = either.changed(test_patch=either.instance.test_patch.replace("exit", "leave"))
    with pytest.raises(TaskError, match="does not apply to its own base") as caught:
        await broken.grade(broken.instance.gold_patch)
    assert not caught.value.retryable


async def test_a_patch_that_keeps_the_hidden_tests_out_has_failed(
    project: Project, repo: Path
) -> None:
    nested = project.changed(test_patch=diff(repo, **{"more/new.sh": "echo PASSED calc::new\n"}))
    verdict = await nested.grade(diff(repo, **{"calc.sh": RIGHT, "more": "in the way\n"}))
    assert verdict.status is VerdictStatus.PATCH_FAILED
    assert "the hidden tests can't be added" in verdict.log_tail


async def test_a_test_patch_that_leaves_the_repository_is_refused(project: Project) -> None:
    outside = "--- a/../../etc/x\n+++ b/../../etc/x\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(TaskError, match="outside the repository"):
        await project.changed(test_patch=outside).grade(project.instance.gold_patch)


async def test_a_patch_of_the_git_folder_is_refused(project: Project) -> None:
    hook = "--- /dev/null\n+++ b/.git/hooks/post-checkout\n@@ -0,0 +1 @@\n+touch /tmp/x\n"
    verdict = await project.grade(hook + project.instance.gold_patch)
    assert verdict.status is VerdictStatus.PATCH_FAILED


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param("Index: a/.git/config\n0a1\n> [core]\n", id="a plain diff"),
        pytest.param(
            "*** a/.git/config\n--- b/none\n***************\n"
            "*** 1 ****\n--- 1,2 ----\n+ [core]\n  [core]\n",
            id="a context diff",
        ),
        pytest.param("Index: a/sub/.git/x\n@@ -0,0 +1 @@\n+x\n", id="another git folder"),
        pytest.param("Index: a/.git\n@@ -0,0 +1 @@\n+x\n", id="in its place"),
    ],
)
async def test_a_patch_that_git_does_not_read_has_no_git_folder_in_reach(
    project: Project, patch: str
) -> None:
    verdict = await project.grade(patch)
    assert verdict.status is VerdictStatus.PATCH_FAILED


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expected": Expected()}, "can't be graded"),
        ({"evaluation": Evaluation()}, "does not say how its tests are run"),
        ({"evaluation": Evaluation(script="make test")}, "does not say how"),
    ],
)
async def test_a_row_that_can_not_be_graded_is_never_a_verdict(
    project: Project, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        await project.changed(**fields).grade(project.instance.gold_patch)


async def test_a_sandbox_that_can_not_start_is_never_a_verdict(project: Project) -> None:
    with pytest.raises(SandboxError):
        await project.changed(image="not/here:1").grade(project.instance.gold_patch)


class Logs:
    """Keeps the logs of test runs, or refuses to."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.kept: list[bytes] = []
        self.refuses = refuses

    async def keep_log(self, episode: EpisodeId, data: bytes) -> TestLog:
        if self.refuses:
            raise StoreError("the store can't write", why="it is full")
        self.kept.append(data)
        return TestLog(f"{episode.instance}/log", len(data), "0" * 64)


async def test_the_log_of_the_patchs_own_run_is_kept_whole(project: Project) -> None:
    logs = Logs()
    grader = Grader(project.grader.site.provider, logs=logs)
    verdict = await replace(project, grader=grader).grade(project.instance.gold_patch)
    assert verdict.resolved
    assert logs.kept == [b"PASSED calc::zero\nPASSED calc::sum\n"]
    assert verdict.test_log == TestLog("demo__calc-1/log", len(logs.kept[0]), "0" * 64)


async def test_a_log_that_can_not_be_kept_costs_no_episode(project: Project) -> None:
    grader = Grader(project.grader.site.provider, logs=Logs(refuses=True))
    verdict = await replace(project, grader=grader).grade(project.instance.gold_patch)
    assert verdict.resolved
    assert verdict.test_log is not None
    assert verdict.test_log.key == ""
    assert "the store can't write" in verdict.test_log.problem


async def test_where_no_tests_ran_there_is_no_log(project: Project) -> None:
    logs = Logs()
    grader = Grader(project.grader.site.provider, logs=logs)
    assert (await replace(project, grader=grader).grade("")).test_log is None
    assert (await replace(project, grader=grader).grade("no diff")).test_log is None
    assert logs.kept == []
