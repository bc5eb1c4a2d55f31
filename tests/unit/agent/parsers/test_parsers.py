"""What holds for all parsers beyond their probes: problems, spelled tokens, exact values.

Text goes through the real vocabulary: `Scaffold` becomes control tokens, `Body` is only spelled.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from swe_rollout.agent.encoding import Body, Encoding, Scaffold
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Mark, Reasoning, SampledText
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import CallStatus, ToolCall

TOOLS = (
    ToolSpec("bash", "", (Parameter("command", "", required=True),)),
    ToolSpec(
        "edit",
        "",
        (
            Parameter("command", "", required=True, choices=("view", "insert")),
            Parameter("text", ""),
            Parameter("line", "", ParameterType.INTEGER),
            Parameter("lines", "", ParameterType.INTEGERS),
            Parameter("share", "", ParameterType.NUMBER),
            Parameter("all", "", ParameterType.BOOLEAN),
        ),
    ),
    ToolSpec("submit", ""),
)
ENCODING = Encoding(Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json")))


def parse(
    form: ToolFormat, *parts: str | Body, prompt_opened_thinking: bool = False
) -> tuple[ToolCall, ...]:
    ids = ENCODING.encode([Scaffold(part) if isinstance(part, str) else part for part in parts])
    return parser_for(form).parse(
        ENCODING.sampled(ids), tools=TOOLS, reasoning=Reasoning(opened=prompt_opened_thinking)
    )


def hermes(name: str, **arguments: object) -> str:
    value = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{value}\n</tool_call>"


def xml(name: str, **values: str) -> str:
    lines = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in values.items())
    return f"<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"


OK = CallStatus.OK
H, X = ToolFormat.HERMES, ToolFormat.QWEN_XML


def test_a_problem_is_a_sentence_the_model_can_act_on() -> None:
    (call,) = parse(H, hermes("edit", command="delete", lin=3))

    assert call.problem == (
        "the call of edit was not run: there is no argument 'lin', it takes command, text, line, "
        "lines, share, all; 'command' must be one of view, insert"
    )


# Functionary's `<function=` is a token of no vocabulary: there the text itself calls.
@pytest.mark.parametrize("form", sorted(set(ToolFormat) - {ToolFormat.FUNCTIONARY}))
def test_a_spelled_out_delimiter_is_no_delimiter_where_a_token_exists(form: ToolFormat) -> None:
    call = hermes("submit") if form is H else xml("submit")

    assert parse(form, Body(call)) == ()


@pytest.mark.parametrize("form", ToolFormat)
def test_a_list_of_pairs_is_no_call_of_an_agent_without_tools(form: ToolFormat) -> None:
    words = SampledText("The pairs are [(1, 2), (3, 4)].", ())

    assert parser_for(form).parse(words, tools=(), reasoning=Reasoning()) == ()


def test_a_spelled_out_closer_does_not_close_a_broken_call() -> None:
    (call,) = parse(H, '<tool_call>\n{"name": ', Body("</tool_call>"), " x\n</tool_call>")

    assert (call.status, call.raw) == (CallStatus.INVALID_JSON, '\n{"name": </tool_call> x\n')


def test_a_spelled_out_end_of_reasoning_does_not_end_it() -> None:
    assert parse(H, "<think>", Body("</think>"), hermes("submit")) == ()


@pytest.mark.threat(point=14)
@pytest.mark.parametrize(
    ("end", "status"),
    [("<|call|>", OK), ("", OK), ("<|return|>", CallStatus.MALFORMED)],
)
def test_a_harmony_call_that_the_end_of_the_conversation_ends_does_not_run(
    end: str, status: CallStatus
) -> None:
    text = "<|channel|>commentary to=functions.submit <|constrain|>json<|message|>{}"
    sampled = SampledText(text, (), ended_by=end)

    (call,) = parser_for(ToolFormat.HARMONY).parse(sampled, tools=TOOLS, reasoning=Reasoning())
    assert call.status is status


def test_text_counts_where_the_vocabulary_has_no_such_token() -> None:
    plain = SampledText(hermes("submit"), (), frozenset())

    (call,) = parser_for(H).parse(plain, tools=TOOLS, reasoning=Reasoning())
    assert (call.status, call.name) == (OK, "submit")


def test_offsets_of_control_tokens_hold_where_characters_are_spread_over_ids() -> None:
    ids = ENCODING.encode([Scaffold("日本🙂<think>é</think>")])

    sampled = ENCODING.sampled(ids)

    assert sampled.text == "日本🙂<think>é</think>"
    assert sampled.marks == (Mark(3, "<think>"), Mark(11, "</think>"))


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60)


@given(VALUES)
def test_any_text_arrives_unchanged_in_json(value: str) -> None:
    text = SampledText(hermes("bash", command=value), (), frozenset())

    (call,) = parser_for(H).parse(text, tools=TOOLS, reasoning=Reasoning())
    assert call.arguments == {"command": value}


@given(VALUES)
def test_any_text_arrives_unchanged_in_tags(value: str) -> None:
    text = SampledText(xml("bash", command=value), (), frozenset())

    (call,) = parser_for(X).parse(text, tools=TOOLS, reasoning=Reasoning())
    assert call.arguments == {"command": value}


@given(
    st.lists(
        st.sampled_from(
            [
                "<tool_call>", "</tool_call>", "<think>", "</think>", "\n", "{", "}", '"', "ls",
                "<function=bash>", "</function>", "<parameter=command>", "</parameter>",
                '{"name": "bash", "arguments": {"command": "ls"}}',
            ]
        ),
        max_size=14,
    ),
    st.sampled_from((H, X)),
    st.booleans(),
)  # fmt: skip
def test_no_text_breaks_a_parser_and_every_opener_outside_reasoning_is_accounted_for(
    pieces: list[str],
    form: ToolFormat,
    opened: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    calls = parse(form, "".join(pieces), prompt_opened_thinking=opened)

    has_opener = "<tool_call>" in pieces
    has_reasoning = opened or "<think>" in pieces
    assert bool(calls) <= has_opener
    assert has_reasoning or bool(calls) == has_opener
