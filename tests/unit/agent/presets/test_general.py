"""`general`: termination by name, turns that are left."""

from __future__ import annotations

import pytest

from swe_rollout import tool
from swe_rollout.types.episode import StopReason
from unit.agent.presets.preset_parts import call, episode, run


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
