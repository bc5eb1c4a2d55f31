"""Presets that are one loop: `general`, `tool`, `react` and `swe`."""

from __future__ import annotations

import pytest

from swe_rollout import tool
from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import Echo
from unit.agent.presets.preset_parts import SUBMIT, call, episode, run


@tool
def write_final_notes(text: str) -> str:
    """Write notes.

    Args:
        text: The notes.
    """
    return f"noted: {text}"


NOTES = ["I write.", call("write_final_notes", text="x")]
OWN = ["bash", f"{__name__}:write_final_notes"]


async def test_a_tool_whose_name_holds_final_ends_nothing() -> None:
    """WA10."""
    played = episode("general", NOTES, "Done.", tools=OWN)

    assert await played.run() is StopReason.FINISHED
    assert len(played.context.turns) == 2


@pytest.mark.parametrize(
    ("names", "turns"), [(["write_final_notes"], 1), (["final", "write_final"], 2)]
)
async def test_tools_end_the_episode_by_their_exact_names(names: list[str], turns: int) -> None:
    """A8."""
    options: dict[str, object] = {"terminationTools": names}
    played = episode("general", NOTES, "Done.", tools=OWN, options=options)

    stop = await played.run()
    assert stop is (StopReason.SUBMITTED if turns == 1 else StopReason.FINISHED)
    assert len(played.context.turns) == turns


async def test_turns_that_are_left_are_shown_once_and_stay() -> None:
    """WA6: what the policy saw is in the log, at the place where it saw it."""
    options: dict[str, object] = {
        "maxRounds": 3,
        "showStepsRemaining": True,
        "stepsRemainingTemplate": "{steps_remaining} {left}!",
    }
    turns = [["I look.", run(f"ls {at}")] for at in range(3)]
    played = episode("general", *turns, options=options)

    assert await played.run() is StopReason.TURN_LIMIT
    assert (played.said.count("2 {left}!"), played.said.count("1 {left}!")) == (1, 1)
    assert "0 {left}!" not in played.said
    first, second = played.engine.requests[1:]
    decode = played.context.parts.tokens.renderer.decode
    assert "2 {left}!" in decode(first.input_ids.tolist())
    assert second.input_ids.tolist()[: len(first.input_ids)] == first.input_ids.tolist()


async def test_nothing_is_shown_by_default() -> None:
    played = episode("general", ["I look.", run("ls")], "Done.")

    await played.run()
    assert "Turns left" not in played.said


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


async def test_a_call_without_reasoning_is_refused() -> None:
    """A12."""
    sandbox = Echo()
    played = episode(
        "swe", [run("ls")], ["I look.", run("pwd")], ["Done.", SUBMIT], sandbox=sandbox
    )

    assert await played.run() is StopReason.SUBMITTED
    assert sandbox.commands == ["pwd"]
    assert "reason before the call" in played.answers[0]


async def test_reasoning_between_its_marks_is_reasoning() -> None:
    played = episode("swe", ["<think>I look.</think>", run("ls")], ["Done.", SUBMIT])
    empty = episode("swe", ["<think></think>", run("ls")], ["Done.", SUBMIT])

    await played.run()
    await empty.run()
    assert "exit code: 0" in played.answers[0]
    assert "reason before the call" in empty.answers[0]


async def test_further_calls_of_a_turn_are_refused() -> None:
    sandbox = Echo()
    played = episode("swe", ["Both.", run("ls"), run("pwd")], ["Done.", SUBMIT], sandbox=sandbox)

    assert await played.run() is StopReason.SUBMITTED
    assert sandbox.commands == ["ls"]
    assert "one call in each turn" in played.answers[1]


async def test_a_value_arrives_byte_for_byte_and_typed() -> None:
    """WA4: nothing is stripped, and a number is a number."""
    insert = call(
        "str_replace_editor",
        command="insert",
        path="/testbed/a.py",
        insert_line=1,
        new_str="        return 5  ",
    )
    played = episode("swe", ["I insert.", insert], ["Done.", SUBMIT], sandbox=MemorySandbox({}))

    await played.run()
    (found,) = played.context.turns[0].tool_calls
    assert found.arguments["new_str"] == "        return 5  "
    assert found.arguments["insert_line"] == 1


async def test_the_issue_is_presented_and_braces_in_it_stay() -> None:
    """P1: `str.format` breaks on an issue like this."""
    played = episode("swe", "Nothing to do.", instancePrompt="{problem_statement} {x} {workdir}")

    await played.run()
    assert "It fails. {x} " in played.text


async def test_the_job_can_choose_another_format() -> None:
    played = episode("swe", ["I look.", run("ls")], ["Done.", SUBMIT], toolFormat="auto")

    assert await played.run() is StopReason.SUBMITTED
    assert "<function=" not in played.text
