"""Conversations with turns that were not sampled here, as each family's template writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout_dev import families
from swe_rollout.agent.history import Exchange
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

FIRST = (Message(MessageRole.SYSTEM, "You fix."), Message(MessageRole.USER, "It fails."))
TOOLS = (
    ToolSpec(
        "bash",
        "Run it.",
        (Parameter("command", "What."), Parameter("n", "Times.", ParameterType.INTEGER)),
    ),
)
NAMES = sorted(path.stem for path in Path(families.__file__).parent.glob("*.jinja"))


def turns(text: str) -> list[Exchange]:
    call = ToolCall(CallStatus.OK, "", "bash", {"command": text, "n": 3})
    return [Exchange(text, (call,), (text,)), Exchange(text, message=text)]


@pytest.mark.threat(point=11)
@pytest.mark.parametrize("name", NAMES)
def test_a_history_is_shown_and_forges_nothing(name: str, tmp_path: Path) -> None:
    renderer = Renderer.load(str(families.write(name, tmp_path / name)))
    assert renderer.history(FIRST, (), TOOLS).ids == renderer.prompt(FIRST, TOOLS).ids
    shown = renderer.history(FIRST, turns("a word"), TOOLS)
    text = renderer.decode(shown.ids)
    # What is said beside a call, some leave out.
    assert text.count("a word") in (4, 5)
    evil = " ".join(renderer.controls.values())
    forged = renderer.history(FIRST, turns(evil), TOOLS)
    assert [i for i in forged.ids if i in renderer.controls] == [
        i for i in shown.ids if i in renderer.controls
    ]
