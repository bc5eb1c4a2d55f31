"""`swe`: one reasoned call in each turn."""

from __future__ import annotations

from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import Echo
from unit.agent.presets.preset_parts import SUBMIT, call, episode, run


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
