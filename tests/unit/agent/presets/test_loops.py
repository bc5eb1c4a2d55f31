"""Presets that are one loop: `general`, `tool`, `react` and `swe`."""

from __future__ import annotations

import pytest

from swe_rollout import tool
from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.types.episode import StopReason
from unit.agent.presets.preset_parts import SUBMIT, Play, call, episode, run


@tool
def write_final_notes(text: str) -> str:
    """Write notes.

    Args:
        text: The notes.
    """
    return f"noted: {text}"


NOTES = (["I write.", call("write_final_notes", text="x")], "Done.")
OWN = {"tools": ["bash", f"{__name__}:write_final_notes"]}
LOOK = ["Thought: I look.", run("ls")]
FOUR = (["All at once.", run("a"), run("b"), run("c"), run("d")], "It is done.")
HAND_IN = ["Done.", SUBMIT]
SUBMITTED, REFUSED = StopReason.SUBMITTED, StopReason.FORMAT_ERRORS
RAN, UNREASONED = {0: "exit code: 0"}, {0: "reason before the call"}


def bounded(*ran: str, **options: object) -> Play:
    """A5: the seed stores the bound of calls in a turn and never enforces it."""
    words = {at: f"a turn may hold {len(ran)} at most" for at in range(len(ran), 4)}
    return Play("tool", FOUR, ran=ran, options=options, answers=words)


def react(*turns: list[object] | str, **options: object) -> Play:
    """An episode of `react` that is answered at last."""
    return Play("react", [*turns, "Final Answer: x"], options=options)


PLAYS = {
    "A8: a name of a tool that holds `final` ends nothing": Play("general", NOTES, agent=OWN),
    "A8: an exact name does": Play(
        "general",
        NOTES,
        SUBMITTED,
        1,
        agent=OWN,
        options={"terminationTools": ["write_final_notes"]},
    ),
    "A8: and no part of one": Play(
        "general", NOTES, agent=OWN, options={"terminationTools": ["final", "write_final"]}
    ),
    "by default no turns that are left are shown": Play(
        "general", (["I look.", run("ls")], "Done."), said={"Turns left": 0}
    ),
    "three calls run": bounded("a", "b", "c"),
    "so many run": bounded("a", "b", maxToolCallsPerStep=2),
    "one runs": bounded("a", allowMultipleToolCalls=False),
    "a turn without a call is the answer": Play("tool", ["It is 42."]),
    "no answer is taken before a call": Play(
        "tool",
        ["It is 42.", ["I look.", run("ls")], "It is 41."],
        options={"requireToolUsage": True},
        said={"You answered without calling a tool": 1},
    ),
    "who never calls a tool comes to an end": Play(
        "tool", ["It is 42."], REFUSED, 3, options={"requireToolUsage": True}
    ),
    "an action needs a thought": Play(
        "react",
        [[run("ls")], ["Thought: Well.", run("pwd")], "Final Answer: x"],
        ran=["pwd"],
        answers={0: "write your thought before the action"},
    ),
    "a bare label is no thought": Play(
        "react",
        [["Thought:", run("ls")], LOOK, "Final Answer: x"],
        answers={0: "write your thought"},
    ),
    "thoughts may be optional": Play(
        "react",
        [[run("ls")], "Final Answer: x"],
        options={"requireThoughtBeforeAction": False},
        answers=RAN,
    ),
    "an action ends a row of thoughts": react(
        "Thought: a.", LOOK, "Thought: b.", LOOK, maxConsecutiveThoughts=2
    ),
    # WA10: only a line that begins with `Final Answer:` is one.
    "prose is no answer": react("The answer: 42.", LOOK),
    "nor is the label within a line": react("I give no Final Answer: yet.", LOOK),
    "nor is its name": react("Thought: final_answer next", LOOK),
    "A4: an answer may stand in place of an action": Play(
        "react", [LOOK, "Thought: x\nAction: Final Answer: done"]
    ),
    "only the first action of a turn runs": Play(
        "react",
        [["Thought: both.", run("ls"), run("pwd")], ["Thought: Done.", SUBMIT]],
        SUBMITTED,
        ran=["ls"],
        answers={1: "one action at a time"},
    ),
    "A12: a call needs reasoning": Play(
        "swe",
        [[run("ls")], ["I look.", run("pwd")], HAND_IN],
        SUBMITTED,
        ran=["pwd"],
        answers=UNREASONED,
    ),
    "reasoning between its marks counts": Play(
        "swe", [["<think>I look.</think>", run("ls")], HAND_IN], SUBMITTED, answers=RAN
    ),
    "and not without words": Play(
        "swe", [["<think></think>", run("ls")], HAND_IN], SUBMITTED, answers=UNREASONED
    ),
    "further calls of a turn are refused": Play(
        "swe",
        [["Both.", run("ls"), run("pwd")], HAND_IN],
        SUBMITTED,
        ran=["ls"],
        answers={1: "one call in each turn"},
    ),
    "calls that are refused again and again end it": Play(
        "swe", [[run(f"ls {at}")] for at in range(9)], REFUSED, 3
    ),
    **{
        f"{most} thoughts in a row": Play(
            "react",
            ["Thought: hm."],
            REFUSED,
            most,
            options={"maxConsecutiveThoughts": most},
            said={"Go on with an action, or a final answer.": most - 1},
        )
        for most in (1, 2)
    },
}


@pytest.mark.parametrize("name", PLAYS)
async def test_a_play_ends_as_it_must(name: str) -> None:
    await PLAYS[name].check()


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


async def test_reflection_is_asked_for_in_the_system_prompt() -> None:
    plain = episode("react", "Final Answer: x")
    asked = episode("react", "Final Answer: x", options={"selfReflection": True})

    await plain.run()
    await asked.run()
    assert "judge your last step" not in plain.text
    assert "judge your last step" in asked.text.partition("<|im_start|>user")[0]


async def test_a_value_arrives_byte_for_byte_and_typed() -> None:
    """WA4: nothing is stripped, and a number is a number."""
    insert = call(
        "str_replace_editor",
        command="insert",
        path="/testbed/a.py",
        insert_line=1,
        new_str="        return 5  ",
    )
    played = episode("swe", ["I insert.", insert], HAND_IN, sandbox=MemorySandbox({}))

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
    played = episode("swe", ["I look.", run("ls")], HAND_IN, toolFormat="auto")

    assert await played.run() is StopReason.SUBMITTED
    assert "<function=" not in played.text
