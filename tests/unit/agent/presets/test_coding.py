"""`coding`: the work of a call, phases, and what its options refuse."""

from __future__ import annotations

from typing import Any

import pytest

from swe_rollout import ToolError, tool
from swe_rollout.agent.presets.coding import Work, work_of
from swe_rollout.spec.limits import Limits
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import ToolCall
from unit.agent.presets.preset_parts import SUBMIT, Play, call, create, episode, run, view


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


OWN = {"tools": [f"{__name__}:view_file", f"{__name__}:search_code"]}
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


def coding(
    *turns: list[object] | str, stop: StopReason = StopReason.SUBMITTED, **more: Any
) -> Play:
    return Play("coding", turns, stop, limits=ROOMY, **more)


def opens(*paths: str) -> list[list[object]]:
    return [["I open.", call("view_file", path=path)] for path in paths]


PLAYS = {
    "changes that no test has seen are handed in on insistence only": coding(
        PATCH, HAND_IN, HAND_IN, answers={1: "run the tests near your change first"}
    ),
    "nothing is asked after a test": coding(PATCH, TEST, HAND_IN),
    "or without the option": coding(PATCH, HAND_IN, options={"testAfterChanges": False}),
    "failed attempts are bounded": coding(
        *(PATCH, TEST, PATCH, TEST, PATCH),
        stop=StopReason.TURN_LIMIT,
        taken=4,
        options={"maxImplementationAttempts": 2},
        fails="pytest",
        said={"1 of 2 attempts failed": 1},
    ),
    "a test that fails before any change is no attempt": coding(
        TEST, HAND_IN, options={"maxImplementationAttempts": 1}, fails="pytest"
    ),
    "tests that pass may end it": coding(
        *(PATCH, TEST, PATCH),
        stop=StopReason.FINISHED,
        taken=2,
        options={"stopWhenTestsPass": True},
    ),
    "commands may be refused": coding(
        ["x", run("ls")],
        HAND_IN,
        options={"enableBashExecution": False},
        ran=[],
        answers={0: "no commands are run here"},
    ),
    "errors in a row are bounded": coding(
        *opens(*["missing.py"] * 9),
        stop=StopReason.FORMAT_ERRORS,
        taken=3,
        options={"maxErrors": 3},
        agent=OWN,
        answers={0: "error:", 1: "error:", 2: "error:"},
    ),
    "views of further files are refused": coding(
        *opens("a.py", "b.py", "a.py", "c.py"),
        "Done.",
        stop=StopReason.FINISHED,
        options={"maxFilesToExplore": 2},
        agent=OWN,
        answers={1: "b.py is empty", 2: "a.py is empty", 3: "2 files were viewed"},
    ),
    "searches are bounded": coding(
        *(["I search.", call("search_code", query="x", max_results=n)] for n in (10, 11)),
        "Done.",
        stop=StopReason.FINISHED,
        agent=OWN,
        answers={0: "nothing found", 1: "max_results may be 10 at most"},
    ),
}


@pytest.mark.parametrize("name", PLAYS)
async def test_a_play_ends_as_it_must(name: str) -> None:
    await PLAYS[name].check()


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
