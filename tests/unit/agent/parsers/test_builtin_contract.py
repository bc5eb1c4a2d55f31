"""The built-in formats keep the contract that formats of users are held to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rollout_dev.parser_probes.calls import write_calls
from swe_rollout.agent.parsers import CALL_FORMATS, parser_for
from swe_rollout.agent.parsers.base import ToolCallParser
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.testing.extensions.call_formats import CallFormatContract
from swe_rollout.types.turn import CallStatus, ToolCall

# A call of Llama or xLAM is the whole answer, and harmony's reasoning is a channel.
OWN_FORMS = {ToolFormat.LLAMA3, ToolFormat.XLAM, ToolFormat.HARMONY, ToolFormat.GLM4}


def test_every_format_has_a_parser() -> None:
    assert {*ToolFormat, *TextFormat} <= set(CALL_FORMATS.names())
    for name in (*ToolFormat, *TextFormat):
        assert parser_for(name)


@pytest.mark.parametrize("form", sorted({*ToolFormat, *TextFormat} - OWN_FORMS), scope="class")
class TestBuiltIn(CallFormatContract):
    form: ToolFormat | TextFormat

    @pytest.fixture(autouse=True)
    def chosen(self, form: ToolFormat | TextFormat) -> None:
        self.form = form

    @pytest.fixture
    def parser(self, form: ToolFormat | TextFormat) -> ToolCallParser:
        return parser_for(form)

    def written(self, name: str, arguments: Mapping[str, object]) -> str:
        return write_calls(self.form, [ToolCall(CallStatus.OK, "", name, dict(arguments))])
