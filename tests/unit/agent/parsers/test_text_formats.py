"""Formats that stand in the words of a turn: the contract, exact values, and nothing else runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.call_text import write_calls
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText, ToolCallParser
from swe_rollout.agent.parsers.json_call import call_of_text
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import CallStatus, ToolCall

EDIT = ToolSpec(
    "edit",
    "Edit a file.",
    (
        Parameter("text", "The new text."),
        Parameter("line", "Where.", ParameterType.INTEGER),
        Parameter("all", "Everywhere.", ParameterType.BOOLEAN),
    ),
)
SUBMIT = ToolSpec("submit", "Hand in.")
PIECES = (
    *("<function=", "</function>", "<parameter=text>", "</parameter>", "TOOL_CALL:", "Action:"),
    *("Action Input:", "Observation:", "Final Answer:", "\n", " ", "'", '"', '"""', "\\", "(", ")"),
    *("{", "}", ",", "//", "/*", "#", "```", "submit()", "edit", "é", "日本", "x", "12"),
)


def parse(form: str, text: str, *, reasoning: Reasoning = Reasoning()) -> tuple[ToolCall, ...]:  # noqa: B008
    return parser_for(form).parse(SampledText(text, ()), tools=(EDIT, SUBMIT), reasoning=reasoning)


def edit(**arguments: object) -> ToolCall:
    return ToolCall(CallStatus.OK, "", "edit", arguments)


def statuses(form: str, text: str) -> list[CallStatus]:
    return [each.status for each in parse(form, text)]


@given(
    form=st.sampled_from([each for each in TextFormat if each is not TextFormat.FUNCTION_XML]),
    text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    line=st.integers(-(2**40), 2**40),
    words=st.sampled_from(["", "Thought: I see, it's odd.\n", "Well (so) \n"]),
)
def test_quoted_values_arrive_unchanged(form: TextFormat, text: str, line: int, words: str) -> None:
    """WA10, WA4: arguments are read by a grammar, never split on commas."""
    arguments: dict[str, object] = {"text": text, "line": line, "all": True}
    (found,) = parse(form, words + write_calls(form, [edit(**arguments)]))
    assert (found.status, found.arguments) == (CallStatus.OK, arguments)


@given(text=st.lists(st.sampled_from([*PIECES, "        "]), max_size=12).map("".join))
def test_a_value_in_tags_arrives_unchanged_or_not_at_all(text: str) -> None:
    """WA4: nothing is stripped, and a value with a closing tag is never cut."""
    found = parse(TextFormat.FUNCTION_XML, write_calls(TextFormat.FUNCTION_XML, [edit(text=text)]))
    ran = [each for each in found if each.status is CallStatus.OK]
    assert all(each.arguments == {"text": text} for each in ran)
    if not any(tag in text for tag in ("<function=", "</function>", "<parameter=", "</parameter>")):
        assert len(ran) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The answer: submit().",
        "I will write TOOL_CALL: submit() soon.",
        "Say `Action: submit()` then.",
        "final_submit()",
        "Final Answer: submit()",
    ],
)
def test_words_about_calls_are_none(text: str) -> None:
    """WA10."""
    for form in TextFormat:
        assert parse(form, text) == ()


def test_a_call_that_is_not_closed_is_not_run() -> None:
    """WA4: the seed runs it with no arguments."""
    text = "<function=edit>\n<parameter=text>x"
    assert statuses(TextFormat.FUNCTION_XML, text) == [CallStatus.UNCLOSED]


def test_parameters_outside_of_a_call_belong_to_none() -> None:
    """WA4: the seed takes them from the prose, or from a second call."""
    text = (
        "I set <parameter=text>prose</parameter> now.\n"
        "<function=edit>\n<parameter=line>3</parameter>\n</function>"
    )
    assert all(each.arguments.get("text") is None for each in parse(TextFormat.FUNCTION_XML, text))


def test_types_come_from_the_schema() -> None:
    """WA4: `insert_line` is a number, and a text of digits stays a text."""
    text = (
        "<function=edit>\n<parameter=line>1</parameter>\n<parameter=text>123</parameter>\n"
        "<parameter=all>true</parameter>\n</function>"
    )
    (found,) = parse(TextFormat.FUNCTION_XML, text)
    assert found.arguments == {"line": 1, "text": "123", "all": True}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("TOOL_CALL: edit(text='a, b=c', line=3)", CallStatus.OK),
        ("TOOL_CALL: edit(text='a') + b", CallStatus.MALFORMED),
        ("TOOL_CALL: edit('a')", CallStatus.MALFORMED),
        ("TOOL_CALL: edit(text=open('x'))", CallStatus.MALFORMED),
        ("TOOL_CALL: edit(text='it's')", CallStatus.UNCLOSED),
        ("TOOL_CALL: edit(text='a'", CallStatus.UNCLOSED),
        ("TOOL_CALL: edit", CallStatus.MISSING_NAME),
        ("TOOL_CALL: edit(line='x')", CallStatus.BAD_ARGUMENTS),
        ("TOOL_CALL: final_edit()", CallStatus.UNKNOWN_TOOL),
    ],
)
def test_lines_are_calls_of_literals(line: str, status: CallStatus) -> None:
    assert statuses(TextFormat.TOOL_CALL_LINE, line) == [status]


@pytest.mark.parametrize("form", [TextFormat.TOOL_CALL_LINE, TextFormat.THOUGHT_ACTION])
def test_what_follows_a_broken_call_is_not_read(form: TextFormat) -> None:
    """It may be the rest of a value that was quoted wrongly."""
    mark = "TOOL_CALL" if form is TextFormat.TOOL_CALL_LINE else "Action"
    text = f"{mark}: edit(text='it's\n{mark}: submit()\n')"
    assert CallStatus.OK not in statuses(form, text)


def test_several_lines_are_several_calls() -> None:
    text = "TOOL_CALL: edit(text='''a\nTOOL_CALL: submit()\n''')\nand\nTOOL_CALL: submit()"
    first, second = parse(TextFormat.TOOL_CALL_LINE, text)
    assert first.arguments == {"text": "a\nTOOL_CALL: submit()\n"}
    assert second.name == "submit"


@pytest.mark.parametrize(
    "action", ["edit(text='x', line=2)", 'edit\nAction Input: {"text": "x", "line": 2}']
)
def test_an_action_has_two_forms(action: str) -> None:
    (found,) = parse(TextFormat.THOUGHT_ACTION, f"Thought: so.\nAction: {action}\n")
    assert found.arguments == {"text": "x", "line": 2}


@pytest.mark.parametrize(
    ("form", "call"),
    [
        (ToolFormat.REACT, 'Action: edit\nAction Input: {"line": 1}'),
        (TextFormat.THOUGHT_ACTION, "Action: edit(line=1)"),
        (TextFormat.ACTION_JSON, 'Action: {"name": "edit", "parameters": {"line": 1}}'),
        (TextFormat.TOOL_CALL_LINE, "TOOL_CALL: edit(line=1)"),
        (TextFormat.FUNCTION_XML, "<function=edit><parameter=line>1</parameter></function>"),
    ],
)
def test_nothing_behind_an_invented_observation_is_run(form: str, call: str) -> None:
    ok, made_up = CallStatus.OK, CallStatus.MALFORMED
    draft = "<think>\nObservation: a draft\n</think>"

    assert statuses(form, f"{call}\nObservation: fine\n{call}\n{call}") == [ok, made_up]
    assert statuses(form, f"{call}\nObservation: fine\n{draft}{call}") == [ok, made_up]
    assert statuses(form, f"{draft}Observation: fine\n{call}") == [made_up]
    assert statuses(form, f"{draft}{call}\nThought: a\n{draft}\n{call}\nObservation: b") == [ok, ok]


@pytest.mark.parametrize(
    ("form", "call", "following"),
    [
        (
            ToolFormat.REACT,
            'Action: edit\nAction Input: {"line":',
            "Action: submit\nAction Input: {}",
        ),
        (
            TextFormat.FUNCTION_XML,
            "<function=edit><parameter=line>1</function>",
            "<function=submit></function>",
        ),
    ],
)
def test_an_invented_observation_counts_within_a_broken_call(
    form: str, call: str, following: str
) -> None:
    made_up = call.replace("=line>", "=line>\nObservation: fine\n").replace(
        '"line":', '"line":\nObservation: fine'
    )
    assert CallStatus.OK not in statuses(form, f"{made_up}\n{following}")


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ('{"name": "edit", "parameters": {"text": "a, //b /* c */ ,}"}}', "a, //b /* c */ ,}"),
        ('```json\n{"name": "edit", // why\n "parameters": {"text": "x",},}\n```', "x"),
        ('{"name": "edit", /* so */ "arguments": {"text": "x"}}', "x"),
    ],
)
def test_json_actions_are_read_with_tolerance(action: str, arguments: str) -> None:
    """A9."""
    (found,) = parse(TextFormat.ACTION_JSON, f"Thought: so.\nAction: {action}\n")
    assert (found.status, found.arguments) == (CallStatus.OK, {"text": arguments})


@pytest.mark.parametrize(
    "action",
    [
        '{"name": "edit"',
        '{"name": "edit", "parameters": []}',
        '{"name": 3}',
        "edit",
        '{"a" 1}',
        "{}",
    ],
)
def test_json_actions_that_are_broken_do_not_run(action: str) -> None:
    assert CallStatus.OK not in statuses(TextFormat.ACTION_JSON, f"Action: {action}")


@pytest.mark.parametrize("form", TextFormat)
def test_the_template_takes_the_format_and_is_told_of_no_tools(form: TextFormat) -> None:
    renderer = Renderer.load(str(tokenizer_path()), tool_format=form)
    first = (Message(MessageRole.SYSTEM, "Act."), Message(MessageRole.USER, "Do it."))
    text = renderer.decode(renderer.prompt(first, (EDIT,)).ids)

    assert renderer.tool_format == form
    assert "<tool_call>" not in text
    assert text.count('"name": "edit"') == 1
    assert write_calls(form, [ToolCall(CallStatus.OK, "", "TOOL", {"KEY": "VALUE"})]) in text
    for after_calls in (True, False):
        renderer.check_message(after_calls=after_calls)


class Arrows(ToolCallParser):
    """Calls as `=> NAME {…}`, which it also writes."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        del reasoning
        _, arrow, text = sampled.text.partition("=> ")
        name, _, arguments = text.partition(" ")
        return (call_of_text(name, arguments, tools=tools, raw=text),) if arrow else ()

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"=> {call.name} {json.dumps(call.arguments)}" for call in calls)


def test_a_format_of_a_users_own_can_stand_in_the_words() -> None:
    """A10: a parser hook needs no template that writes its format."""
    renderer = Renderer.load(str(tokenizer_path()), tool_format=f"{__name__}:Arrows")
    text = renderer.decode(renderer.prompt([Message(MessageRole.USER, "Do it.")], (EDIT,)).ids)

    assert '=> TOOL {"KEY": "VALUE"}' in text
    assert "<tool_call>" not in text
