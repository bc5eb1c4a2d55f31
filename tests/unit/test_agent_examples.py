"""The agents in `examples/agents`: short, and each does what its first line says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkout import ROOT
from swe_rollout.agent.program import AGENTS, Agent
from swe_rollout.extension import import_file
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.testing.extensions.agents import AgentContract
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import RENDERER, SUBMIT, Echo, Played, bash, loop_of, player

FILES = sorted((ROOT / "examples" / "agents").glob("*.py"))
MOST_LINES = 20


def example(name: str, **parameters: object) -> Agent:
    import_file(ROOT / "examples" / "agents" / f"{name}.py")
    return AGENTS.load(f"{name}:{name}", parameters)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES
    assert path.stem in (ROOT / "docs" / "how-to" / "extend" / "agents.md").read_text("utf-8")


class TestPlannerExecutor(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return example("planner_executor")


class TestReviewer(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return example("reviewer")


class TestRetryWithFeedback(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return example("retry_with_feedback")


class TestBestOfN(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return example("best_of_n")


@dataclass
class Checked(Echo):
    """Fails the check a number of times."""

    failures: int = 0
    checks: int = 0

    async def exec(self, command: str | Sequence[str], **options: object) -> ExecResult:
        if command != "check":
            return await super().exec(command, **options)  # type: ignore[arg-type]
        self.checks += 1
        code = 1 if self.checks <= self.failures else 0
        return ExecResult(code, b"1 failed", b"", stdout_bytes=8)


async def run(
    name: str, *texts: str, sandbox: Echo | None = None, **parameters: object
) -> tuple[Played, StopReason]:
    engine = player(*texts)
    played = loop_of(engine, sandbox=sandbox, program=example(name, **parameters))
    stop = await played.run()
    return played, stop


def branch_texts(played: Played) -> list[str]:
    return [RENDERER.decode(branch.token_ids) for branch in played.context.branches()]


async def test_the_executor_works_by_the_plan_of_the_planner() -> None:
    played, stop = await run(
        "planner_executor", bash("cat a.py"), "1. Change a.py.", bash("edit"), SUBMIT
    )
    assert stop is StopReason.SUBMITTED
    planner, executor = branch_texts(played)
    assert "1. Change a.py." in planner
    assert "Carry out this plan.\n\n1. Change a.py.\n\nIssue:\nIt fails." in executor
    assert "cat a.py" not in executor


async def test_a_reviewer_sends_a_patch_back_until_it_is_approved() -> None:
    played, stop = await run(
        "reviewer", bash("edit"), SUBMIT, bash("git diff"), "It misses a test.", SUBMIT, "APPROVED."
    )
    assert stop is StopReason.SUBMITTED
    assert [turn.branch for turn in played.context.episode_turns] == [0, 0, 1, 1, 0, 2]
    assert "A reviewer asks for changes:\n\nIt misses a test." in branch_texts(played)[0]


async def test_the_policy_reads_why_the_check_failed() -> None:
    sandbox = Checked(failures=1)
    played, stop = await run(
        "retry_with_feedback", SUBMIT, bash("fix"), SUBMIT, sandbox=sandbox, check="check"
    )
    assert (stop, sandbox.checks) == (StopReason.SUBMITTED, 2)
    assert "`check` fails (exit code 1):\n\n1 failed\n\nFix it." in branch_texts(played)[0]


async def test_failed_attempts_stay_in_the_record_and_the_first_good_one_is_kept() -> None:
    sandbox = Checked(failures=1)
    played, stop = await run(
        "best_of_n", bash("first-try"), SUBMIT, bash("two"), SUBMIT, sandbox=sandbox, check="check"
    )
    assert (stop, sandbox.checks) == (StopReason.SUBMITTED, 2)
    assert sandbox.commands == ["first-try", "git stash --include-untracked", "two"]
    first, second = branch_texts(played)
    assert "first-try" not in second
    assert "It fails." in second
    assert first.partition("assistant\n")[0] == second.partition("assistant\n")[0]
