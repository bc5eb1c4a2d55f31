"""The contract of call formats as tests: subclass `CallFormatContract`, write and parse calls.

    class TestFenced(CallFormatContract):
        @pytest.fixture
        def parser(self):
            return my_formats.Fenced()

        def written(self, name, arguments):
            return f"<call {name}>{json.dumps(arguments)}</call>"

Needs pytest.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import ClassVar

import pytest

from swe_rollout.agent.parsers.base import Reasoning, SampledText, ToolCallParser
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_TOOLS = (
    ToolSpec(
        "edit",
        "Edit a file.",
        (
            Parameter("path", "Which.", required=True),
            Parameter("text", "The new text."),
            Parameter("line", "Where.", ParameterType.INTEGER),
            Parameter("all", "Everywhere.", ParameterType.BOOLEAN),
        ),
    ),
    ToolSpec("submit", "Hand in."),
)
_ARGUMENTS: tuple[dict[str, object], ...] = (
    {"path": "a b.py"},
    {"path": "x", "line": 3, "all": True},
    {"path": "é/日本", "text": 'if x:\n\treturn "{}"\\n'},
    {"path": "x", "text": "12"},
)
_LONG = 50_000
_SLOW_S = 5.0


class CallFormatContract:
    """The contract of a parser. Override the fixture `parser`, and `written`."""

    reasoning: ClassVar[Reasoning] = Reasoning()
    """How models that use the format mark their reasoning."""

    @pytest.fixture
    def parser(self) -> ToolCallParser:
        """The parser."""
        raise NotImplementedError("override the fixture `parser`")

    def written(self, name: str, arguments: Mapping[str, object]) -> str:
        """Return the text of one call, as the model writes it."""
        raise NotImplementedError("override `written`")

    def _parsed(
        self, parser: ToolCallParser, text: str, reasoning: Reasoning | None = None
    ) -> tuple[ToolCall, ...]:
        sampled = SampledText(text, ())
        return parser.parse(sampled, tools=_TOOLS, reasoning=reasoning or self.reasoning)

    @pytest.mark.parametrize("arguments", _ARGUMENTS)
    def test_what_is_written_is_read(
        self, parser: ToolCallParser, arguments: dict[str, object]
    ) -> None:
        (call,) = self._parsed(parser, self.written("edit", arguments))
        assert (call.status, call.name, call.arguments) == (CallStatus.OK, "edit", arguments)

    def test_a_call_may_follow_words(self, parser: ToolCallParser) -> None:
        (call,) = self._parsed(parser, "I look.\n" + self.written("submit", {}))
        assert call.status is CallStatus.OK

    def test_words_are_no_call(self, parser: ToolCallParser) -> None:
        assert self._parsed(parser, "All is well: edit, submit.") == ()
        assert self._parsed(parser, "") == ()

    def test_a_part_of_a_call_does_not_run(self, parser: ToolCallParser) -> None:
        text = self.written("edit", {"path": "x", "line": 12})
        for end in range(len(text.rstrip())):
            found = self._parsed(parser, text[:end])
            assert all(call.status is not CallStatus.OK for call in found), text[:end]

    def test_a_wrong_call_tells_the_policy_why(self, parser: ToolCallParser) -> None:
        (unknown,) = self._parsed(parser, self.written("remove", {"path": "x"}))
        (missing,) = self._parsed(parser, self.written("edit", {"line": 1}))
        (mistyped,) = self._parsed(parser, self.written("edit", {"path": "x", "line": "soon"}))
        assert unknown.status is CallStatus.UNKNOWN_TOOL
        assert {missing.status, mistyped.status} == {CallStatus.BAD_ARGUMENTS}
        for call in (unknown, missing, mistyped):
            assert call.problem
            assert call.arguments == {}

    def test_a_draft_in_the_reasoning_is_no_call(self, parser: ToolCallParser) -> None:
        marks, call = self.reasoning, self.written("submit", {})
        assert self._parsed(parser, f"{marks.opener}{call}{marks.closer}Done.") == ()
        opened = Reasoning(marks.opener, marks.closer, opened=True)
        assert self._parsed(parser, call, opened) == ()
        assert self._parsed(parser, f"{call}{marks.closer}Done.", opened) == ()

    def test_broken_text_is_read_in_time_and_nothing_is_raised(
        self, parser: ToolCallParser
    ) -> None:
        text, rng = self.written("edit", {"path": "x"}), random.Random(0)  # noqa: S311 - repeatable
        for _ in range(300):
            start, end = sorted(rng.choices(range(len(text) + 1), k=2))
            self._parsed(parser, text[:start] + rng.choice(("", text)) + text[end:])
        began = time.monotonic()
        self._parsed(parser, text[: len(text) // 2] * (_LONG // len(text)))
        assert time.monotonic() - began < _SLOW_S
