"""Tools that run nothing (L5, L10, L19), and those that ask a further agent (L20)."""

from __future__ import annotations

import json

import pytest

from swe_rollout.agent.tools import load_tool, toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.errors import EngineError
from swe_rollout.spec.limits import Limits
from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import RENDERER, SUBMIT, Echo, bash, loop_of, player

TOOLS = toolbox(["bash", "agent", "architect", "submit"])


@pytest.mark.parametrize(
    ("name", "arguments", "text", "ends"),
    [
        (
            "finish",
            {"answer": "a", "reasoning": "r", "status": "partial"},
            "The work is handed in.",
            True,
        ),
        ("finish", {"answer": "a"}, "The work is handed in.", True),
        ("r2e_finish", {"command": "submit", "result": "r"}, "<<<Finished>>>", True),
        ("submit", {}, "The work is handed in.", True),
        ("r2e_submit", {}, "The work is handed in.", True),
        ("think", {"thought": "x" * 10**6}, "The thought is noted.", False),
        ("Think", {"thought": "x" * 10**6}, "noted", False),
    ],
)
async def test_nothing_is_run(
    name: str,
    arguments: dict[str, object],
    text: str,
    ends: bool,  # noqa: FBT001 - parametrized
) -> None:
    tool, sandbox = load_tool(name), MemorySandbox({}, lost=True)

    assert tool.spec.ends_episode is ends
    assert tool.spec.problems(arguments) == []
    assert (await tool.run(arguments, sandbox, ToolContext(5, 300))).text == text
    assert sandbox.uses == 0


def test_what_a_finish_must_and_may_hold() -> None:
    finish, r2e = load_tool("finish").spec, load_tool("r2e_finish").spec

    assert finish.problems({}) == ["the argument 'answer' is missing"]
    assert finish.problems({"answer": "a", "status": "done"}) == [
        "'status' must be one of success, partial, failed"
    ]
    assert r2e.problems({"command": "quit"}) == ["'command' must be one of submit"]


def asks(tool: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


async def test_an_agent_works_and_its_answer_is_the_result_l20() -> None:
    sandbox = Echo()
    engine = player(asks("agent", prompt="Look."), bash("child"), "Found it.", SUBMIT)
    played = loop_of(engine, sandbox=sandbox, tools=TOOLS)

    assert await played.run() is StopReason.SUBMITTED

    assert sandbox.commands == ["child"]
    first, *_ = played.turns
    assert [seen.text for seen in first.observations] == ["Found it."]
    main, child = played.context.branches()
    assert "Look." in RENDERER.decode(child.token_ids)
    assert '"submit"' not in RENDERER.decode(child.token_ids)
    assert "Found it." in RENDERER.decode(main.token_ids)


async def test_an_architect_has_no_tools_and_reads_the_context_l20() -> None:
    call = asks("architect", prompt="How?", context="x = 1")
    engine = player(call, "First this, then that.", SUBMIT)
    played = loop_of(engine, tools=TOOLS)

    assert await played.run() is StopReason.SUBMITTED

    child = RENDERER.decode(played.context.branches()[1].token_ids)
    assert '"bash"' not in child
    assert "How?\n\nx = 1" in child
    assert played.turns[0].observations[0].text == "First this, then that."


async def test_an_agent_that_asks_itself_comes_to_an_end() -> None:
    engine = player(asks("agent", prompt="Do it."))
    played = loop_of(engine, tools=TOOLS, limits=Limits(turns=12))

    assert await played.run() is StopReason.TURN_LIMIT

    assert len(played.context.branches()) <= 12
    said = [seen.text for turn in played.context.episode_turns for seen in turn.observations]
    assert any("no further agent may be asked" in text for text in said)


async def test_an_answer_fits_and_says_why_the_agent_was_stopped() -> None:
    engine = player(asks("agent", prompt="Do it."), bash("x"), bash("y"), bash("z"))
    played = loop_of(engine, tools=TOOLS, limits=Limits(turns=3, tool_output_bytes=256))

    assert await played.run() is StopReason.TURN_LIMIT

    text = played.turns[0].observations[0].text
    assert text.endswith("(the agent was stopped: turn_limit)")
    assert len(text.encode()) <= 256


async def test_a_lost_engine_in_a_further_agent_is_a_failure_of_the_episode() -> None:
    engine = player(asks("agent", prompt="Do it."), SUBMIT)

    def fail(_: object) -> None:
        if len(engine.requests) == 2:
            raise EngineError("the engine is gone")

    engine.before = fail
    played = loop_of(engine, tools=TOOLS)
    with pytest.raises(EngineError):
        await played.run()


async def test_an_empty_prompt_is_refused() -> None:
    engine = player(asks("agent", prompt=" "), SUBMIT)
    played = loop_of(engine, tools=TOOLS)
    assert await played.run() is StopReason.SUBMITTED
    assert played.turns[0].observations[0].text == "error: the prompt is empty"
