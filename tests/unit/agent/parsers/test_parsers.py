"""The truth table of tool-call parsing: what runs, what is refused and why, what is no call.

Text goes through the real vocabulary: `Scaffold` becomes control tokens, `Body` is only spelled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

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


def raw(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


LS = {"command": "ls"}
OK = CallStatus.OK


@dataclass(frozen=True)
class Probe:
    case: str
    form: ToolFormat
    text: str
    statuses: tuple[CallStatus, ...]
    arguments: Mapping[str, object] | None = None
    opened: bool = False


H, X = ToolFormat.HERMES, ToolFormat.QWEN_XML
PROBES = [
    Probe("one call", H, hermes("bash", command="ls"), (OK,), LS),
    Probe("prose around it", H, f"I look.\n{hermes('bash', command='ls')}\nok", (OK,), LS),
    Probe("two calls", H, hermes("bash", command="ls") + "\n" + hermes("submit"), (OK, OK)),
    Probe("no arguments", H, hermes("submit"), (OK,), {}),
    Probe("no call", H, "All done.", ()),
    Probe("nothing", H, "", ()),
    Probe("no framing newlines", H,
          '<tool_call>{"name":"submit","arguments":{}}</tool_call>', (OK,)),
    Probe("closer in a string", H, hermes("bash", command="echo '</tool_call>'"), (OK,),
          {"command": "echo '</tool_call>'"}),
    Probe("opener in a string", H, hermes("bash", command="grep '<tool_call>' x"), (OK,)),
    Probe("reasoning tags in a string", H, hermes("bash", command="echo '<think>'"), (OK,)),
    Probe("whole call in a string", H, hermes("bash", command=hermes("submit")), (OK,)),
    Probe("draft in reasoning", H, f"<think>{hermes('submit')}</think>ok", ()),
    Probe("draft, then a call", H, f"<think>{hermes('submit')}</think>"
          f"{hermes('bash', command='ls')}", (OK,), LS),
    Probe("draft in reasoning the prompt opened", H, f"{hermes('submit')}</think>ok", (),
          opened=True),
    Probe("call behind reasoning the prompt opened", H, f"hm</think>{hermes('submit')}", (OK,),
          opened=True),
    Probe("reasoning the prompt opened never ends", H, hermes("submit"), (), opened=True),
    Probe("reasoning never ends", H, f"<think>{hermes('submit')}", ()),
    Probe("unclosed", H, '<tool_call>\n{"name": "submit", "arguments": {}}',
          (CallStatus.UNCLOSED,)),
    Probe("cut in the JSON", H, '<tool_call>\n{"name": "bash", "argu', (CallStatus.UNCLOSED,)),
    Probe("only an opener", H, "<tool_call>", (CallStatus.UNCLOSED,)),
    Probe("unclosed before the next", H, '<tool_call>\n{"name": "submit", "arguments": {}}\n'
          + hermes("bash", command="ls"), (CallStatus.UNCLOSED, OK)),
    Probe("a brace missing", H, raw('{"name": "bash", "arguments": {"command": "ls"}'),
          (CallStatus.INVALID_JSON,)),
    Probe("a brace too many", H, raw('{"name": "submit", "arguments": {}}}'),
          (CallStatus.INVALID_JSON,)),
    Probe("raw newline in a string", H, raw('{"name": "bash", "arguments": {"command": "a\nb"}}'),
          (CallStatus.INVALID_JSON,)),
    Probe("single quotes", H, raw("{'name': 'submit', 'arguments': {}}"),
          (CallStatus.INVALID_JSON,)),
    Probe("trailing comma", H, raw('{"name": "submit", "arguments": {},}'),
          (CallStatus.INVALID_JSON,)),
    Probe("a key twice", H, raw('{"name": "submit", "name": "bash", "arguments": {}}'),
          (CallStatus.INVALID_JSON,)),
    Probe("not a number", H, raw('{"name": "edit", "arguments": {"share": NaN}}'),
          (CallStatus.INVALID_JSON,)),
    Probe("half a surrogate pair", H, raw('{"name": "bash", "arguments": {"command": "\\ud800"}}'),
          (CallStatus.INVALID_JSON,)),
    Probe("nested beyond reason", H, raw("[" * 100_000), (CallStatus.INVALID_JSON,)),
    Probe("a number beyond reason", H, raw("9" * 5000), (CallStatus.INVALID_JSON,)),
    Probe("fenced", H, raw('```json\n{"name": "submit", "arguments": {}}\n```'),
          (CallStatus.INVALID_JSON,)),
    Probe("empty call", H, raw(""), (CallStatus.INVALID_JSON,)),
    Probe("bad call, then a good one", H, raw("{") + hermes("submit"),
          (CallStatus.INVALID_JSON, OK)),
    Probe("arguments as a string", H, raw('{"name": "bash", "arguments": "{\\"command\\": 1}"}'),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("no arguments key", H, raw('{"name": "submit"}'), (CallStatus.BAD_ARGUMENTS,)),
    Probe("no name", H, raw('{"arguments": {}}'), (CallStatus.MISSING_NAME,)),
    Probe("empty name", H, raw('{"name": "", "arguments": {}}'), (CallStatus.MISSING_NAME,)),
    Probe("name is no text", H, raw('{"name": 3, "arguments": {}}'), (CallStatus.MISSING_NAME,)),
    Probe("not an object", H, raw('["submit"]'), (CallStatus.MALFORMED,)),
    Probe("more keys", H, raw('{"name": "submit", "arguments": {}, "id": 1}'),
          (CallStatus.MALFORMED,)),
    Probe("unknown tool", H, hermes("python", code="1"), (CallStatus.UNKNOWN_TOOL,)),
    Probe("argument missing", H, hermes("bash"), (CallStatus.BAD_ARGUMENTS,)),
    Probe("argument unknown", H, hermes("bash", cmd="ls"), (CallStatus.BAD_ARGUMENTS,)),
    Probe("null", H, hermes("bash", command=None), (CallStatus.BAD_ARGUMENTS,)),
    Probe("number for text", H, hermes("bash", command=3), (CallStatus.BAD_ARGUMENTS,)),
    Probe("text for a number", H, hermes("edit", command="view", line="3"),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("true for a number", H, hermes("edit", command="view", line=True),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("3.0 for an integer", H, hermes("edit", command="view", line=3.0),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("an integer no record can hold", H, hermes("edit", command="view", line=2**70),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("infinite", H, raw('{"name": "edit", "arguments": {"command": "view", "share": 1e999}}'),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("mixed array", H, hermes("edit", command="view", lines=[1, "2"]),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("not a choice", H, hermes("edit", command="delete"), (CallStatus.BAD_ARGUMENTS,)),
    Probe("all kinds", H,
          hermes("edit", command="view", line=3, lines=[1, -1], share=0.5, all=True), (OK,),
          {"command": "view", "line": 3, "lines": [1, -1], "share": 0.5, "all": True}),
    Probe("xml: one call", X, xml("bash", command="ls"), (OK,), LS),
    Probe("xml: no arguments", X, xml("submit"), (OK,), {}),
    Probe("xml: two calls", X, xml("bash", command="ls") + "\n" + xml("submit"), (OK, OK)),
    Probe("xml: no call", X, "done", ()),
    Probe("xml: indentation and blank lines are the value", X,
          xml("bash", command="\n    ls  \n\n"), (OK,), {"command": "\n    ls  \n\n"}),
    Probe("xml: empty value", X, xml("bash", command=""), (OK,), {"command": ""}),
    Probe("xml: text that looks like a number stays text", X, xml("bash", command="123"), (OK,),
          {"command": "123"}),
    Probe("xml: text that looks like null stays text", X, xml("bash", command="null"), (OK,),
          {"command": "null"}),
    Probe("xml: typed by the schema", X,
          xml("edit", command="view", line="3", lines="[1, -1]", share="0.5", all="True"), (OK,),
          {"command": "view", "line": 3, "lines": [1, -1], "share": 0.5, "all": True}),
    Probe("xml: not an integer", X, xml("edit", command="view", line="three"),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("xml: not true or false", X, xml("edit", command="view", all="yes"),
          (CallStatus.BAD_ARGUMENTS,)),
    Probe("xml: closing tag in a value", X, xml("bash", command="echo '</parameter>' x"), (OK,),
          {"command": "echo '</parameter>' x"}),
    Probe("xml: two closing tags in a value", X,
          xml("bash", command="</parameter>\n</function>\necho"), (OK,),
          {"command": "</parameter>\n</function>\necho"}),
    Probe("xml: closer in a value", X, xml("bash", command="echo '</tool_call>'"), (OK,),
          {"command": "echo '</tool_call>'"}),
    Probe("xml: unclosed", X, "<tool_call>\n<function=submit>\n</function>",
          (CallStatus.UNCLOSED,)),
    Probe("xml: cut in a value", X, "<tool_call>\n<function=bash>\n<parameter=command>\nls",
          (CallStatus.UNCLOSED,)),
    Probe("xml: unclosed parameter", X,
          raw("<function=bash>\n<parameter=command>\nls\n</function>"), (CallStatus.MALFORMED,)),
    Probe("xml: unclosed parameter before another", X,
          raw("<function=edit>\n<parameter=command>\nview\n<parameter=line>\n3\n</parameter>\n"
              "</function>"), (CallStatus.MALFORMED,)),
    Probe("xml: unclosed parameter, then a good call", X,
          raw("<function=bash>\n<parameter=command>\nls\n</function>") + xml("submit"),
          (CallStatus.MALFORMED, OK)),
    Probe("xml: no function end", X, raw("<function=submit>"), (CallStatus.MALFORMED,)),
    Probe("xml: text between parameters", X, raw("<function=submit>\nplease\n</function>"),
          (CallStatus.MALFORMED,)),
    Probe("xml: parameter twice", X,
          raw("<function=bash>\n" + 2 * "<parameter=command>\nls\n</parameter>\n" + "</function>"),
          (CallStatus.MALFORMED,)),
    Probe("xml: no name", X, raw("<function=>\n</function>"), (CallStatus.MISSING_NAME,)),
    Probe("xml: no function", X, raw("bash ls\n</function>"), (CallStatus.MISSING_NAME,)),
    Probe("xml: unknown tool", X, xml("python", code="1"), (CallStatus.UNKNOWN_TOOL,)),
    Probe("xml: argument missing", X, xml("bash"), (CallStatus.BAD_ARGUMENTS,)),
    Probe("xml: JSON instead", X, hermes("submit"), (CallStatus.MALFORMED,)),
    Probe("xml: draft in reasoning", X, f"<think>{xml('submit')}</think>", ()),
    Probe("xml: draft in reasoning the prompt opened", X, f"{xml('submit')}</think>", (),
          opened=True),
]  # fmt: skip


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.case)
def test_each_attempt_has_the_status_it_earns(probe: Probe) -> None:
    calls = parse(probe.form, probe.text, prompt_opened_thinking=probe.opened)

    assert tuple(call.status for call in calls) == probe.statuses
    if probe.arguments is not None:
        assert calls[0].arguments == probe.arguments
    for call in calls:
        assert bool(call.problem) == (call.status is not OK)
        assert call.status is OK or not call.arguments
        assert call.raw in probe.text
        assert len(call.problem) < 400


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
