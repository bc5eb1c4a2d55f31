"""A call in tags runs with the whole value that was written, or not at all."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout_dev.parser_probes.calls import write_calls
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall
from unit.agent.schema_tool import schema_tool

TOOLS = (
    schema_tool(text={"type": "string"}, note={"type": "string"}),
    ToolSpec("submit", ""),
)
# One of each grammar: GLM-4.5, DeepSeek V4 and Muse differ from one of these in names alone.
TAGS = (
    ToolFormat.QWEN_XML,
    ToolFormat.GLM47,
    ToolFormat.DEEPSEEK_V32,
    ToolFormat.MINIMAX_M2,
    ToolFormat.SEED,
    ToolFormat.MINICPM,
    ToolFormat.HY3,
)
WORDS = (" ", "\n", "a", "'", "rm -rf ./x", "<a>", "</a>", "<", "/>", '"', "<think>", "</think>")


def call(**arguments: object) -> ToolCall:
    return ToolCall(CallStatus.OK, "", "edit", arguments)


def parse(form: ToolFormat, text: str) -> tuple[ToolCall, ...]:
    return parser_for(form).parse(SampledText(text, ()), tools=TOOLS, reasoning=Reasoning())


def pieces(form: ToolFormat) -> list[str]:
    """What the format writes: whole calls, their tags, and the ends of calls."""
    written = [
        write_calls(form, [call(text="x")]),
        write_calls(form, [call(text="x", note="y")]),
        write_calls(form, [ToolCall(CallStatus.OK, "", "submit", {})]),
        write_calls(form, [ToolCall(CallStatus.OK, "", "other", {"zzz": "1"})]),
    ]
    tags = [tag for text in written for tag in re.findall(r"</?[^<>]+>", text)]
    ends = [text[text.index("x") + 1 :] for text in written[:1]]
    middles = [end[: at.end()] for end in ends for at in re.finditer(r">\s*", end)]
    return [*written, *tags, *ends, *middles]


@pytest.mark.threat(point=14)
@pytest.mark.parametrize("form", TAGS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_runs_is_what_was_written_whatever_its_value_quotes(
    form: ToolFormat, data: st.DataObject
) -> None:
    quoted = st.lists(st.sampled_from([*pieces(form), *WORDS]), max_size=7).map("".join)
    value, note = data.draw(quoted), data.draw(st.none() | quoted)
    written = call(text=value) if note is None else call(text=value, note=note)
    behind = data.draw(st.sampled_from(["", "\n", " Done."]))

    text = write_calls(form, [written])
    found = parse(form, text + behind)

    # A value may quote ends and beginnings so that the text is one call after another, or one
    # parameter after another. Then that is what it says, and there is nothing to tell it by.
    said = "".join(squeezed(write_calls(form, [each])) for each in found)
    if said != squeezed(text) and not is_whole_calls(form, text, found):
        assert [each for each in found if each.status is _OK] == []


_OK = CallStatus.OK


def is_whole_calls(form: ToolFormat, text: str, found: tuple[ToolCall, ...]) -> bool:
    """Whether a turn is well-formed calls, maybe with wrong arguments, and words without tags."""
    bare = write_calls(form, [ToolCall(_OK, "", "submit", {})])
    (submit,) = parse(form, bare)
    frame = squeezed(bare).replace(squeezed(submit.raw), "", 1)
    rest = squeezed(text)
    for each in found:
        rest = rest.replace(squeezed(each.raw), "", 1)
    rest = rest.replace(frame, "")
    tags = {squeezed(tag) for piece in pieces(form) for tag in re.findall(r"</?[^<>]+>", piece)}
    checked = {_OK, CallStatus.BAD_ARGUMENTS, CallStatus.UNKNOWN_TOOL}
    return not any(tag in rest for tag in tags) and {each.status for each in found} <= checked


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.threat(point=14)
@pytest.mark.parametrize("form", TAGS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_an_honest_value_runs(form: ToolFormat, data: st.DataObject) -> None:
    """Whole parameters, opening tags of others, single closing tags among words."""
    parameter = write_calls(form, [ToolCall(_OK, "", "x", {"zzz": "1"})])
    tags = re.findall(r"</?[^<>]+>", parameter)
    (closer,) = [tag for tag in tags if re.match(r"</[^<>]*(param|arg_value)", tag)]
    whole = parameter[parameter.index("<", 1 + parameter.index("x")) :]
    whole = whole[: whole.index(closer) + len(closer)]
    block = data.draw(
        st.lists(
            st.sampled_from([f"a\n{whole}\nb", f"a {closer} b", "words", '<x y="1">']), max_size=4
        ).map("\n".join)
    )
    written = call(text=f"a{block}b")

    (found,) = parse(form, write_calls(form, [written]))

    assert (found.status, found.arguments) == (_OK, written.arguments), found.problem


@pytest.mark.parametrize("form", [ToolFormat.GLM45, ToolFormat.GLM47, ToolFormat.HY3])
@pytest.mark.parametrize("between", ["", "\n", " : ", "\\n", '", "', "</b>"])
@pytest.mark.parametrize("around", ["{}", "see {}!", "{0}{0}", "see {}\n{}"])
def test_a_value_may_quote_keys_with_values_in_any_form(
    form: ToolFormat, between: str, around: str
) -> None:
    end = ":opensource>" if form is ToolFormat.HY3 else ">"
    key, value = f"<arg_key{end}k</arg_key{end}", f"<arg_value{end}v</arg_value{end}"
    written = call(text=around.format(key + between + value, value), note="n")

    (found,) = parse(form, write_calls(form, [written]))

    assert (found.status, found.arguments) == (_OK, written.arguments), found.problem
