"""The grammar of gpt-oss: messages with a channel, one of them to `functions.NAME`.

    <|channel|>analysis<|message|>…<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}

The recipient may stand with the role or with the channel. `<|call|>` ends the turn, so it has been
cut from the text already. The analysis channel is the reasoning: what it says is never a call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.base import ToolCallParser, told
from swe_rollout.agent.parsers.json_call import call_of_text
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swe_rollout.agent.parsers.base import Reasoning, SampledText
    from swe_rollout.agent.tools.base import ToolSpec

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_RECIPIENT = re.compile(r"\bto=(\S*?)(?=\s|<\||$)")


@dataclass(frozen=True, slots=True)
class _Message:
    start: int
    header: str
    body: str | None
    """None where the message was never begun."""
    end: str
    """What ended it; empty for the end of the turn."""
    stop: int


class HarmonyParser(ToolCallParser):
    """Reads messages to functions."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every message to a function, in order; channels say what is reasoning."""
        del reasoning
        return tuple(
            _call(sampled, message, tools)
            for message in _messages(sampled)
            if _RECIPIENT.search(message.header)
        )


def _messages(sampled: SampledText) -> Iterator[_Message]:
    at, size = 0, len(sampled.text)
    while at < size:
        begin = at
        body = sampled.first((_MESSAGE, _START), at + 1 if sampled.find(_START, at) == at else at)
        if body is None or body.token == _START:
            stop = size if body is None else body.start
            yield _Message(begin, sampled.text[begin:stop], None, "", stop)
            at = stop
            continue
        start = body.start + len(_MESSAGE)
        end = sampled.first((_END, _CALL, _RETURN, _START), start)
        stop = size if end is None else end.start
        token = "" if end is None else end.token
        yield _Message(
            begin, sampled.text[begin : body.start], sampled.text[start:stop], token, stop
        )
        at = stop + (len(token) if token != _START else 0)


def _call(sampled: SampledText, message: _Message, tools: Sequence[ToolSpec]) -> ToolCall:
    found = _RECIPIENT.search(message.header)
    recipient = found[1] if found else ""
    span = sampled.span(message.start, message.stop) if message.stop > message.start else None
    raw = message.header if message.body is None else message.body
    prefix, _, name = recipient.partition(".")

    def refused(status: CallStatus, problem: str) -> ToolCall:
        return ToolCall(status, raw, name, problem=told(problem), span=span)

    if message.body is None:
        return refused(CallStatus.UNCLOSED, f"{_MESSAGE} and its arguments are missing")
    if message.end not in ("", _CALL):
        return refused(CallStatus.MALFORMED, f"it must end in {_CALL}, not in {message.end}")
    if prefix != "functions":
        return refused(CallStatus.UNKNOWN_TOOL, f"there is no recipient {recipient[:80]!r}")
    if not name:
        return refused(CallStatus.MISSING_NAME, "it does not name a function")
    if _is_analysis(message.header):
        return refused(CallStatus.MALFORMED, "a call belongs to the commentary channel")
    call = call_of_text(name, message.body, tools=tools, raw=raw)
    return ToolCall(call.status, raw, name, call.arguments, call.problem, span=span)


def _is_analysis(header: str) -> bool:
    return header.partition(_CHANNEL)[2].split(None, 1)[:1] == ["analysis"]
