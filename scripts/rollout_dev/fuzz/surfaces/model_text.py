"""Samples of a policy: calls in every grammar, and turns of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

from rollout_dev.fuzz.surface import promise, split_head, surface, with_head
from rollout_dev.parser_probes.calls import write_calls
from rollout_dev.parser_probes.probe_files import BUILT_IN
from swe_rollout.agent.encoding import Body, Scaffold
from swe_rollout.agent.parsers import CALL_FORMATS, parser_for
from swe_rollout.agent.parsers.base import Mark, Reasoning, SampledText
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.sampled_turn import MAX_CALLS, read_cut_turn, read_turn
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import CallStatus, ToolCall

_TAG = re.compile(r"<[^<>\n]{1,40}>|\[/?[A-Z_]{3,}\]")
_CALLS = (
    ToolCall(CallStatus.OK, "", "bash", {"command": "ls -l\necho é \"quoted\" 'x' </a>"}),
    ToolCall(
        CallStatus.OK,
        "",
        "str_replace_editor",
        {"command": "view", "path": "/a", "view_range": [1, 20]},
    ),
    ToolCall(CallStatus.OK, "", "submit", {}),
)


@cache
def _tools() -> Sequence[ToolSpec]:
    return toolbox(["bash", "str_replace_editor", "submit"]).specs


def _written(form: str) -> list[str]:
    sets = [_CALLS[:1], _CALLS[1:2], _CALLS, _CALLS[2:]]
    if form in set(TextFormat):
        return [f"I look.\n{write_calls(TextFormat(form), each[:1])}" for each in sets]
    return [f"<think>hm</think>\n{write_calls(ToolFormat(form), each)}" for each in sets]


def _samples() -> Sequence[bytes]:
    made = [
        with_head(form, text.encode()) for form in CALL_FORMATS.names() for text in _written(form)
    ]
    for file in BUILT_IN:
        # Only their texts, as checking their ids needs a tokenizer for each.
        for probe in json.loads(file.read_bytes())["probes"]:
            made.append(with_head(probe["format"], probe["text"].encode(errors="replace")))  # noqa: PERF401
    return made


def _read_calls(data: bytes) -> None:
    head, body = split_head(data)
    if head not in CALL_FORMATS.names():
        return
    text = body.decode(errors="replace")
    marks: tuple[Mark, ...] = ()
    if len(text) % 2:  # in half of the vocabularies, tags are tokens
        marks = tuple(Mark(each.start(), each[0]) for each in _TAG.finditer(text))
    sampled = SampledText(
        text, marks, frozenset(mark.token for mark in marks), token_at=lambda at: at
    )
    for opened in (False, True):
        calls = parser_for(head).parse(sampled, tools=_tools(), reasoning=Reasoning(opened=opened))
        _check(text, calls)


def _check(text: str, calls: Sequence[ToolCall]) -> None:
    end = 0
    known = {spec.name for spec in _tools()}
    for call in calls:
        promise(call.raw in text or "\0" in call.raw, "what was sampled was changed")
        promise(call.status is not CallStatus.OK or call.name in known, "an unknown tool runs")
        promise(call.status is CallStatus.OK or call.problem, "a refusal without a reason")
        promise(call.status is CallStatus.OK or not call.arguments, "a refused call has arguments")
        if call.span is not None:
            promise(0 <= call.span.start <= call.span.end <= len(text) + 1, "a span outside")
            promise(call.span.start >= end or call.span.end >= end, "spans run backwards")
            end = call.span.start


CALLS = surface("model-text", _read_calls, samples=_samples)


@cache
def _renderer() -> Renderer:
    return Renderer.load(str(tokenizer_path()))


def _turn_samples() -> Sequence[bytes]:
    return [f"{text}<|im_end|>".encode() for text in _written(ToolFormat.HERMES)]


def _read_turn(data: bytes) -> None:
    renderer = _renderer()
    text = data.decode(errors="replace")
    # Half may contain control tokens, as a policy samples them; the rest is plain text.
    ids = renderer._encoding.encode([Scaffold(text[::1]), Body(text[:200])])  # noqa: SLF001 - a policy's ids
    turn = read_turn(renderer, ids, tools=_tools(), opens_reasoning=len(data) % 2 == 0)
    promise(len(turn.calls) <= MAX_CALLS + 1, "more calls than a turn may have")
    promise(not any("could not be read" in call.problem for call in turn.calls), "a parser failed")
    for call in turn.calls:
        promise(call.span is None or call.span.end <= len(ids), "a span outside of the turn")
    read_cut_turn(renderer, ids, opens_reasoning=True)
    if ids:
        calls = turn.calls[:5]
        results = [text[:500]] * len(calls)
        renderer.delta(ids[-1], calls, results=results, tools=_tools())
        first = renderer.prompt([Message(MessageRole.USER, text[:2000])], _tools())
        promise(first.ids, "a prompt without tokens")


TURNS = surface("model-turns", _read_turn, samples=_turn_samples)
