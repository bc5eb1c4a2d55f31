"""Whenever a process dies, the episode's record is what it would have been, less its times."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.program import Agent, loop
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.types.episode import StopReason
from unit.agent.agent_parts import BROKEN, SUBMIT, UNCLOSED, bash
from unit.journal.journal_parts import Death, Engine, Life, essence, undisturbed


def edit(command: str, **arguments: object) -> str:
    """A turn that calls the editor."""
    body = {"name": "str_replace_editor", "arguments": {"command": command, **arguments}}
    return f"<tool_call>\n{json.dumps(body)}\n</tool_call>"


def both(*turns: str) -> str:
    """A turn with the calls of several."""
    return "\n".join(turns)


async def delegates(context: AgentContext) -> StopReason:
    """Asks a sub-agent, and goes on with its words."""
    await context.begin()
    if await context.turn() and not context.can_continue:
        return context.stop or StopReason.FINISHED
    child = await context.spawn("Look around.", tools=["bash"], turns=3)
    await child.finish()
    if not context.can_continue:
        return context.stop or StopReason.FINISHED
    context.say(f"It says: {child.said}")
    return await context.finish()


async def looks_itself(context: AgentContext) -> StopReason:
    """Runs commands of its own between turns, several at a time, and answers a call itself."""
    await context.begin()
    while (turn := await context.generate()).stop is None:
        await context.sandbox.exec("add program")
        if len(turn.calls) > 1:
            context.answer(turn.calls[0], "refused")
        await context.run()
        if context.stop:
            break
    return context.stop or StopReason.FINISHED


TEXTS = st.sampled_from(
    [
        bash("add a"),
        bash("add b"),
        bash("look"),
        both(bash("add c"), bash("add c")),
        edit("create", path="/new.py", file_text="x = 1\n"),
        edit("view", path="/missing.py"),
        edit("str_replace", path="/new.py", old_str="x", new_str="y"),
        BROKEN,
        UNCLOSED,
        "Only words, and " + "very many of them. " * 30,
    ]
)
PROGRAMS: tuple[Agent, ...] = (loop, delegates, looks_itself)
LIMITS = (
    Limits(turns=12, context_tokens=4096, max_new_tokens=256),
    Limits(turns=7, context_tokens=4096, max_new_tokens=30, cut_turns=CutTurns.ANSWER),
    Limits(turns=12, context_tokens=2048, max_new_tokens=128, compact_at=900),
)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(TEXTS, max_size=6),
    deaths=st.lists(st.integers(1, 14), min_size=1, max_size=3),
    program=st.sampled_from(PROGRAMS),
    limits=st.sampled_from(LIMITS),
    finishes_writes=st.booleans(),
)
async def test_a_record_is_the_same_wherever_its_process_dies(
    texts: list[str],
    deaths: list[int],
    program: Agent,
    limits: Limits,
    finishes_writes: bool,  # noqa: FBT001 - hypothesis gives it by name
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = Engine({0: [*texts, SUBMIT], 1: [bash("add d"), "Nothing."]})
        alone = Life(folder / "alone", replace(engine, asked=[]), program=program, limits=limits)
        expected = await undisturbed(alone)
        assert expected.failure is None

        lives = [Death(at, finishes_writes=finishes_writes) for at in deaths]
        for death in [*lives, Death()]:
            life = Life(
                folder / "killed",
                replace(engine, asked=[]),
                program=program,
                limits=limits,
                death=death,
            )
            found = await life.play()
            if found is not None:
                break
        assert found is not None
        assert essence(found) == essence(expected)
        if life.disks.started:
            # Each command is seen in the files as often as it was asked for.
            assert life.disks.started[-1].files == alone.disks.started[-1].files
