"""Calls of the set can be written in every call format: `-A` in all that are not Python."""

from __future__ import annotations

import pytest

from rollout_dev.parser_probes.calls import write_calls
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.names import CLAUDE_CODE
from swe_rollout.spec.model import Use
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

SPECS = toolbox(CLAUDE_CODE).specs
EDITS = [
    {"old_string": "\tx = 1\n", "new_string": "\tx = 2\n", "replace_all": True},
    {"old_string": "a", "new_string": ""},
]
CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("Grep", {"pattern": r"def \w+\(", "-A": 3, "-i": True, "output_mode": "content"}),
    ("MultiEdit", {"file_path": "a b.py", "edits": EDITS}),
    ("TodoWrite", {"todos": [{"content": "look", "status": "pending"}]}),
    ("LS", {"path": ".", "ignore": ["*.log"]}),
    ("TodoRead", {}),
)


PYTHON = (ToolFormat.LFM2, ToolFormat.OLMO3, ToolFormat.PYTHONIC)
PLAIN = toolbox([Use.model_validate({"use": "Grep", "with": {"plain_names": True}})]).specs


@pytest.mark.parametrize("form", list(ToolFormat))
def test_a_call_reads_back_as_it_was_written(form: ToolFormat) -> None:
    for name, arguments in CALLS:
        if form in PYTHON and name == "Grep":
            continue
        call = ToolCall(CallStatus.OK, "", name, arguments)
        text = write_calls(form, [call])
        (read,) = parser_for(form).parse(SampledText(text, ()), tools=SPECS, reasoning=Reasoning())
        assert (read.status, read.name, read.arguments) == (CallStatus.OK, name, arguments), text


@pytest.mark.parametrize("form", PYTHON)
def test_python_formats_have_names_without_a_dash(form: ToolFormat) -> None:
    arguments: dict[str, object] = {"pattern": "x", "after": 1, "before": 2, "around": 3}
    arguments |= {"line_numbers": True, "ignore_case": False}
    text = write_calls(form, [ToolCall(CallStatus.OK, "", "Grep", arguments)])
    (read,) = parser_for(form).parse(SampledText(text, ()), tools=PLAIN, reasoning=Reasoning())
    assert (read.status, read.arguments) == (CallStatus.OK, arguments)
