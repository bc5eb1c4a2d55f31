"""`tool`: calls and an answer."""

from __future__ import annotations

import pytest

from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import Echo
from unit.agent.presets.preset_parts import episode, run

FOUR = ["All at once.", run("a"), run("b"), run("c"), run("d")]


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        ({}, ["a", "b", "c"]),
        ({"maxToolCallsPerStep": 2}, ["a", "b"]),
        ({"allowMultipleToolCalls": False}, ["a"]),
    ],
)
async def test_calls_of_a_turn_are_bounded(options: dict[str, object], ran: list[str]) -> None:
    """A5: the seed stores the bound and never enforces it."""
    sandbox = Echo()
    played = episode("tool", FOUR, "It is done.", options=options, sandbox=sandbox)

    assert await played.run() is StopReason.FINISHED
    assert sandbox.commands == ran
    assert all(f"a turn may hold {len(ran)} at most" in each for each in played.answers[len(ran) :])
    assert len(played.answers) == 4


async def test_a_turn_without_a_call_is_the_answer() -> None:
    played = episode("tool", "It is 42.")

    assert await played.run() is StopReason.FINISHED
    assert played.context.said == "It is 42."


async def test_an_answer_before_any_call_is_not_taken_where_tools_are_required() -> None:
    options: dict[str, object] = {"requireToolUsage": True}
    played = episode("tool", "It is 42.", ["I look.", run("ls")], "It is 41.", options=options)

    assert await played.run() is StopReason.FINISHED
    assert len(played.context.turns) == 3
    assert "You answered without calling a tool" in played.said


async def test_a_policy_that_never_calls_one_comes_to_an_end() -> None:
    played = episode("tool", "It is 42.", options={"requireToolUsage": True})

    assert await played.run() is StopReason.FORMAT_ERRORS
    assert len(played.context.turns) == 3
