"""`react`: thoughts, actions, answers."""

from __future__ import annotations

import pytest

from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import Echo
from unit.agent.presets.preset_parts import SUBMIT, episode, run

LOOK = ["Thought: I look.", run("ls")]


async def test_an_action_without_a_thought_is_refused() -> None:
    sandbox = Echo()
    played = episode(
        "react", [run("ls")], ["Thought: Well.", run("pwd")], "Final Answer: x", sandbox=sandbox
    )

    assert await played.run() is StopReason.FINISHED
    assert sandbox.commands == ["pwd"]
    assert "write your thought before the action" in played.answers[0]


async def test_a_bare_label_is_no_thought() -> None:
    played = episode("react", ["Thought:", run("ls")], LOOK, "Final Answer: x")

    await played.run()
    assert "write your thought" in played.answers[0]


async def test_thoughts_are_not_required_where_the_option_says_so() -> None:
    options: dict[str, object] = {"requireThoughtBeforeAction": False}
    played = episode("react", [run("ls")], "Final Answer: x", options=options)

    await played.run()
    assert "exit code: 0" in played.answers[0]


@pytest.mark.parametrize("most", [1, 2])
async def test_thoughts_in_a_row_are_bounded(most: int) -> None:
    played = episode("react", "Thought: hm.", options={"maxConsecutiveThoughts": most})

    assert await played.run() is StopReason.FORMAT_ERRORS
    assert len(played.context.turns) == most
    assert played.said.count("Go on with an action, or a final answer.") == most - 1


async def test_an_action_ends_a_row_of_thoughts() -> None:
    options: dict[str, object] = {"maxConsecutiveThoughts": 2}
    turns = ["Thought: a.", LOOK, "Thought: b.", LOOK, "Final Answer: c"]
    played = episode("react", *turns, options=options)

    assert await played.run() is StopReason.FINISHED


@pytest.mark.parametrize(
    "words", ["The answer: 42.", "I give no Final Answer: yet.", "Thought: final_answer next"]
)
async def test_an_answer_in_prose_ends_nothing(words: str) -> None:
    """WA10: only a line that begins with `Final Answer:` does."""
    played = episode("react", words, LOOK, "Thought: x\nFinal Answer: done")

    assert await played.run() is StopReason.FINISHED
    assert len(played.context.turns) == 3


async def test_an_answer_may_stand_in_place_of_an_action() -> None:
    """A4."""
    played = episode("react", LOOK, "Thought: x\nAction: Final Answer: done")

    assert await played.run() is StopReason.FINISHED
    assert len(played.context.turns) == 2


async def test_only_the_first_action_of_a_turn_is_run() -> None:
    sandbox = Echo()
    turn = ["Thought: both.", run("ls"), run("pwd")]
    played = episode("react", turn, ["Thought: Done.", SUBMIT], sandbox=sandbox)

    assert await played.run() is StopReason.SUBMITTED
    assert sandbox.commands == ["ls"]
    assert "one action at a time" in played.answers[1]


async def test_reflection_is_asked_for_in_the_system_prompt() -> None:
    plain = episode("react", "Final Answer: x")
    asked = episode("react", "Final Answer: x", options={"selfReflection": True})

    await plain.run()
    await asked.run()
    assert "judge your last step" not in plain.text
    assert "judge your last step" in asked.text.partition("<|im_start|>user")[0]
