"""The words of a recorded turn are told from its calls exactly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rollout_dev.parser_probes.calls import write_calls
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.recorded_text import RecordedText, recorded_text
from swe_rollout.agent.tools import toolbox
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.trajectory import TokenPath
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall, Turn

HERMES = TokenPath("chatml", "hermes", "")
CALL = '\n{"name": "bash", "arguments": {"command": "ls </tool_call> x"}}\n'
WRITTEN = f"<tool_call>{CALL}</tool_call>"


def turn(
    text: str,
    raws: Sequence[str] = (),
    *,
    status: CallStatus = CallStatus.OK,
    finish: FinishReason = FinishReason.STOP,
) -> Turn:
    calls = tuple(ToolCall(status, raw, "bash") for raw in raws)
    return Turn(0, RequestProof(0, ""), text, finish, 1, 0, calls)


@pytest.mark.parametrize(
    ("text", "raws", "expected"),
    [
        ("I am done.<|im_end|>", (), RecordedText("I am done.", "I am done.")),
        (f"I look.\n{WRITTEN}<|im_end|>", (CALL,), RecordedText(f"I look.\n{WRITTEN}", "I look.")),
        (f"a{WRITTEN}b{WRITTEN}c", (CALL, CALL), RecordedText(f"a{WRITTEN}b{WRITTEN}c", "abc")),
        (WRITTEN, (CALL,), RecordedText(WRITTEN, "")),
        (
            f"<think>no {WRITTEN} yet</think>go{WRITTEN}",
            (CALL,),
            RecordedText(
                f"<think>no {WRITTEN} yet</think>go{WRITTEN}",
                f"<think>no {WRITTEN} yet</think>go",
            ),
        ),
        # Here the prompt had opened the reasoning.
        (
            f"no {WRITTEN} yet</think>go{WRITTEN}",
            (CALL,),
            RecordedText(f"no {WRITTEN} yet</think>go{WRITTEN}", f"no {WRITTEN} yet</think>go"),
        ),
    ],
)
def test_calls_are_cut_out_and_reasoning_stays(
    text: str, raws: Sequence[str], expected: RecordedText
) -> None:
    assert recorded_text(turn(text, raws), HERMES) == expected


def test_calls_that_are_not_those_of_the_record_are_not_cut() -> None:
    found = recorded_text(turn(f"{WRITTEN}{WRITTEN}", (CALL,)), HERMES)
    assert found == RecordedText(f"{WRITTEN}{WRITTEN}", None)


def test_a_call_that_did_not_parse_stays_in_the_text() -> None:
    broken = turn("<tool_call>{", ("{",), status=CallStatus.UNCLOSED)
    assert recorded_text(broken, HERMES) == RecordedText("<tool_call>{", None)


@pytest.mark.parametrize("path", [None, TokenPath("chatml", "no.such.module:Parser", "")])
def test_an_unknown_format_is_not_guessed(path: TokenPath | None) -> None:
    assert recorded_text(turn(WRITTEN, (CALL,)), path).words is None


def test_the_end_of_a_cut_turn_is_text() -> None:
    cut = turn("I write <|im_end|>", finish=FinishReason.LENGTH)
    assert recorded_text(cut, HERMES).sampled == "I write <|im_end|>"
    unknown = TokenPath("mine", "hermes", "")
    assert recorded_text(turn("x<|im_end|>"), unknown).sampled == "x<|im_end|>"


@pytest.mark.parametrize("family", ["chatml", "derived"])
@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
def test_every_end_that_the_record_names_is_left_out(family: str, end: str) -> None:
    path = TokenPath(family, "hermes", "", ends=("<|endoftext|>", "<|im_end|>"))
    found = recorded_text(turn(f"I look.\n{WRITTEN}{end}", (CALL,)), path)
    assert found == RecordedText(f"I look.\n{WRITTEN}", "I look.")


TOOLS = toolbox(["bash", "submit"]).specs


@pytest.mark.parametrize("form", ToolFormat)
@pytest.mark.parametrize("words", ["", "I look.\n", "I look.\n\nAnd then: "])
def test_of_every_format_words_and_calls_are_told_apart_or_left_together(
    form: ToolFormat, words: str
) -> None:
    """No word is lost, and no part of a call's markup is taken for one."""
    calls = [ToolCall(CallStatus.OK, "", "bash", {"command": "ls"})] * 2
    for written in (calls[:1], calls):
        text = words + write_calls(form, written)
        reader = parser_for(form)
        found = reader.parse(SampledText(text, ()), tools=TOOLS, reasoning=Reasoning())
        recorded = replace(turn(text), tool_calls=found)
        path = TokenPath("chatml", form, "")
        told = recorded_text(recorded, path, TOOLS)
        assert told.sampled == text
        if not found:
            assert told.words == text
        elif told.words is not None and len(found) == len(written):
            assert told.words == words.rstrip(), text


def test_a_section_that_holds_more_than_calls_is_not_cut() -> None:
    path = TokenPath("kimi_k2", "kimi_k2", "")
    begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    written = write_calls(ToolFormat.KIMI_K2, [ToolCall(CallStatus.OK, "", "bash", {})])
    inner = written.removeprefix(begin).removesuffix(end)
    text = f"{begin}{inner} and words {end}"
    reader = parser_for("kimi_k2")
    found = reader.parse(SampledText(text, ()), tools=TOOLS, reasoning=Reasoning())
    recorded = replace(
        turn(text), tool_calls=tuple(replace(call, status=CallStatus.OK) for call in found)
    )
    assert recorded_text(recorded, path, TOOLS).words in (None, text)
