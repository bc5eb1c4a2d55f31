"""`coding`: the work of a call, phases, and what its options refuse."""

from __future__ import annotations

import pytest

from swe_rollout import ToolError, tool
from swe_rollout.agent.presets.coding import Work, work_of
from swe_rollout.spec.limits import Limits
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import ToolCall
from unit.agent.agent_parts import Echo
from unit.agent.presets.preset_parts import SUBMIT, call, create, episode, run, view


@tool
def view_file(path: str) -> str:
    """View a file.

    Args:
        path: Which.
    """
    if path == "missing.py":
        raise ToolError("there is no such file")
    return f"{path} is empty"


@tool
def search_code(query: str, max_results: int = 5) -> str:
    """Search the code.

    Args:
        query: What for.
        max_results: How many.
    """
    del query, max_results
    return "nothing found"


OWN = [f"{__name__}:view_file", f"{__name__}:search_code"]
PATCH = ["I change it.", run("git apply fix.patch")]
TEST = ["I test.", run("python -m pytest -q")]
HAND_IN = ["Done.", SUBMIT]
ROOMY = Limits(turns=30)


async def test_the_phase_follows_the_work_and_is_told_once() -> None:
    """A6."""
    look = ["I search.", "Phase: exploration", run("ls")]
    played = episode("coding", look, PATCH, PATCH, TEST, HAND_IN, limits=ROOMY)

    assert await played.run() is StopReason.SUBMITTED
    told = [line.split(".")[0] for line in played.said.splitlines() if line.startswith("Phase: ")]
    assert told == ["Phase: exploration", "Phase: implementation", "Phase: testing"]
    assert "1 test runs, 0 of 3 attempts failed" in played.said


async def test_changes_that_no_test_has_seen_are_handed_in_on_insistence_only() -> None:
    played = episode("coding", PATCH, HAND_IN, HAND_IN, limits=ROOMY)

    assert await played.run() is StopReason.SUBMITTED
    assert "run the tests near your change first" in played.answers[1]
    assert len(played.context.turns) == 3


@pytest.mark.parametrize(
    ("options", "turns"),
    [({}, [PATCH, TEST, HAND_IN]), ({"testAfterChanges": False}, [PATCH, HAND_IN])],
)
async def test_nothing_is_asked_after_a_test_or_without_the_option(
    options: dict[str, object], turns: list[list[object]]
) -> None:
    played = episode("coding", *turns, options=options, limits=ROOMY)

    assert await played.run() is StopReason.SUBMITTED
    assert len(played.context.turns) == len(turns)


async def test_failed_attempts_are_bounded() -> None:
    options: dict[str, object] = {"maxImplementationAttempts": 2}
    failing = Echo(fails="pytest")
    played = episode(
        "coding",
        PATCH,
        TEST,
        PATCH,
        TEST,
        PATCH,
        options=options,
        sandbox=failing,
        limits=ROOMY,
    )

    assert await played.run() is StopReason.TURN_LIMIT
    assert len(played.context.turns) == 4
    assert "1 of 2 attempts failed" in played.said


async def test_a_test_that_fails_before_any_change_is_no_attempt() -> None:
    options: dict[str, object] = {"maxImplementationAttempts": 1}
    failing = Echo(fails="pytest")
    played = episode("coding", TEST, HAND_IN, options=options, sandbox=failing, limits=ROOMY)

    assert await played.run() is StopReason.SUBMITTED


async def test_tests_that_pass_end_the_episode_where_the_option_says_so() -> None:
    options: dict[str, object] = {"stopWhenTestsPass": True}
    played = episode("coding", PATCH, TEST, PATCH, options=options, limits=ROOMY)

    assert await played.run() is StopReason.FINISHED
    assert len(played.context.turns) == 2


async def test_commands_are_refused_where_they_are_not_enabled() -> None:
    sandbox = Echo()
    options: dict[str, object] = {"enableBashExecution": False}
    played = episode("coding", ["x", run("ls")], HAND_IN, options=options, sandbox=sandbox)

    await played.run()
    assert sandbox.commands == []
    assert "no commands are run here" in played.answers[0]


async def test_errors_in_a_row_are_bounded() -> None:
    turns = [["I open.", call("view_file", path="missing.py")] for _ in range(9)]
    options: dict[str, object] = {"maxErrors": 3}
    played = episode("coding", *turns, options=options, limits=ROOMY, tools=OWN)

    assert await played.run() is StopReason.FORMAT_ERRORS
    assert [each[:6] for each in played.answers] == ["error:"] * 3


async def test_views_of_further_files_are_refused() -> None:
    turns = [["I open.", call("view_file", path=path)] for path in ("a.py", "b.py", "a.py", "c.py")]
    options: dict[str, object] = {"maxFilesToExplore": 2}
    played = episode("coding", *turns, "Done.", options=options, limits=ROOMY, tools=OWN)

    assert await played.run() is StopReason.FINISHED
    assert played.answers[:3] == ["a.py is empty", "b.py is empty", "a.py is empty"]
    assert "2 files were viewed" in played.answers[3]


async def test_searches_are_bounded() -> None:
    turns = [["I search.", call("search_code", query="x", max_results=n)] for n in (10, 11)]
    played = episode("coding", *turns, "Done.", limits=ROOMY, tools=OWN)

    await played.run()
    assert played.answers[0] == "nothing found"
    assert "max_results may be 10 at most" in played.answers[1]


@pytest.mark.parametrize(
    ("found", "work"),
    [
        (view("a.py"), Work.VIEW),
        (create("a.py"), Work.EDIT),
        (run("ls"), Work.COMMAND),
        (run("cd x && python -m pytest -q a.py"), Work.TEST),
        (run("bin/test -C"), Work.TEST),
        (run("grep -rn contest ."), Work.COMMAND),
        (run("git apply fix.patch && git diff"), Work.EDIT),
        (call("execute_bash", cmd="sed -i s/a/b/ x"), Work.EDIT),
        (call("run_tests", test_command="x"), Work.TEST),
        (call("search_code", query="x"), Work.SEARCH),
        (call("bash", command=3), Work.OTHER),
        (SUBMIT, Work.OTHER),
    ],
)
def test_the_work_of_a_call(found: ToolCall, work: Work) -> None:
    assert work_of(found) is work
