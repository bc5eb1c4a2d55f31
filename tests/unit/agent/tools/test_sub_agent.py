"""Tools that ask a further agent: a branch of its own, its last words as the result (L20)."""

from __future__ import annotations

import json

import pytest

from swe_rollout.agent.tools import toolbox
from swe_rollout.errors import EngineError
from swe_rollout.spec.limits import Limits
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import RENDERER, SUBMIT, Echo, bash, loop_of, player
from unit.agent.branch_checks import assert_branches_hold

TOOLS = toolbox(["bash", "agent", "architect", "submit"])


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
    assert_branches_hold(played, engine)


async def test_an_architect_has_no_tools_and_reads_the_context_l20() -> None:
    call = asks("architect", prompt="How?", context="x = 1")
    engine = player(call, "First this, then that.", SUBMIT)
    played = loop_of(engine, tools=TOOLS)

    assert await played.run() is StopReason.SUBMITTED

    child = RENDERER.decode(played.context.branches()[1].token_ids)
    assert '"bash"' not in child
    assert "How?\n\nx = 1" in child
    assert played.turns[0].observations[0].text == "First this, then that."
    assert_branches_hold(played, engine)


async def test_an_agent_that_asks_itself_comes_to_an_end() -> None:
    engine = player(asks("agent", prompt="Do it."))
    played = loop_of(engine, tools=TOOLS, limits=Limits(turns=12))

    assert await played.run() is StopReason.TURN_LIMIT

    assert len(played.context.branches()) <= 12
    said = [seen.text for turn in played.context.episode_turns for seen in turn.observations]
    assert any("no further agent may be asked" in text for text in said)
    assert_branches_hold(played, engine)


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
