"""The grammar of gpt-oss: messages with a channel, in which a call is addressed to a function.

    <|channel|>analysis<|message|>…<|end|>
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}

The recipient may follow the role or the channel. `<|call|>` ends the turn and is no longer in the
text; a message that ends with any other token is not a runnable call. The analysis channel is the
reasoning: nothing in it is a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from swe_rollout.agent.parsers.base import Mark, Reasoning, Refusal, SampledText, ToolCallParser
from swe_rollout.agent.parsers.json_call import call_of_text
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_ADDRESSED = re.compile(r"(?:^|\s)to=")
_ROLE = re.compile(r"(?:assistant)?+(?:\s++to=(?P<recipient>\S*+))?+\s*+")
# Possessive, because white space between optional parts could match in many ways.
_ON_CHANNEL = re.compile(
    r"\s*+(?P<channel>\w++)(?:\s++to=(?P<recipient>[^\s<]*+))?+\s*+"
    r"(?:(?:<\|constrain\|>\s*+)?+json)?+\s*+"
)


@dataclass(frozen=True, slots=True)
class _Message:
    start: int
    header: str
    role: str
    """The header before its channel."""
    channel: str
    """The header after the token that starts its channel."""
    body: str | None
    """The message; None if it never started."""
    end: Mark
    """The token that ended it, or the end of the turn."""

    @property
    def behind(self) -> int:
        """Offset after the message; the opener of the next one also ends it."""
        return self.end.start if self.end.token == _START else self.end.end

    @property
    def raw(self) -> str:
        return self.header if self.body is None else self.body

    @property
    def is_addressed(self) -> bool:
        return any(map(_ADDRESSED.search, (self.role, self.channel)))


class HarmonyParser(ToolCallParser):
    """Reads messages to functions."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        # A prompt that opened the reasoning already contains the header of the first message.
        first = _ended(sampled, 0) if reasoning.opened else Mark(0, "")
        return tuple(
            replace(
                _call(message, tools, sampled.ended_by),
                span=sampled.span(message.start, message.behind),
            )
            for message in _messages(sampled, first.start if first.token == _START else first.end)
            if message.is_addressed
        )


def _messages(sampled: SampledText, start: int) -> Iterator[_Message]:
    at = start
    while at < len(sampled.text):
        message = _message(sampled, at)
        yield message
        at = message.behind


def _ended(sampled: SampledText, start: int) -> Mark:
    last = Mark(len(sampled.text), "")
    return sampled.first((_END, _CALL, _RETURN, _START), start) or last


def _message(sampled: SampledText, start: int) -> _Message:
    text, last = sampled.text, Mark(len(sampled.text), "")
    header = start + len(_START) if sampled.find(_START, start) == start else start
    begun = sampled.first((_MESSAGE, _START, _END, _CALL, _RETURN), header) or last
    channel = sampled.find(_CHANNEL, header)
    parted = begun.start if channel is None else min(channel, begun.start)
    role, rest = text[header:parted], text[parted : begun.start].removeprefix(_CHANNEL)
    if header == start and not _ADDRESSED.search(role):
        # Text before the first message is plain text, as it is before any call.
        role = ""
    whole = text[header : begun.start]
    if begun.token != _MESSAGE:
        return _Message(start, whole, role, rest, None, begun)
    is_call = _ADDRESSED.search(role) or _ADDRESSED.search(rest)
    end = _ended(sampled, _known_to(text, begun.end) if is_call else begun.end)
    return _Message(start, whole, role, rest, text[begun.end : end.start], end)


def _known_to(text: str, start: int) -> int:
    """Return the end of a call's JSON; delimiters in its strings do not end it."""
    try:
        return read_json(text, start).end
    except ValueError:
        return start


def _call(message: _Message, tools: Sequence[ToolSpec], ended_by: str) -> ToolCall:
    """Read a call; `ended_by` is the token that ended the turn."""
    end = message.end.token or ended_by
    role, channel = _ROLE.fullmatch(message.role), _ON_CHANNEL.fullmatch(message.channel)
    recipients = {found["recipient"] for found in (role, channel) if found} - {None}
    recipient = recipients.pop() if len(recipients) == 1 else ""
    prefix, _, name = recipient.partition(".")

    def refused(status: CallStatus, problem: str) -> ToolCall:
        return Refusal(status, problem, name).call(message.raw)

    if message.body is None:
        return refused(CallStatus.UNCLOSED, f"{_MESSAGE} and its arguments are missing")
    if role is None or channel is None or recipients or channel["channel"] != "commentary":
        problem = f"its header must be {_CHANNEL}commentary to=functions.NAME <|constrain|>json"
        return refused(CallStatus.MALFORMED, problem)
    if end not in ("", _CALL):
        problem = f"it must end in {_CALL}, not in {end}"
        return refused(CallStatus.MALFORMED, problem)
    if not recipient or (prefix == "functions" and not name):
        return refused(CallStatus.MISSING_NAME, "it does not name a function")
    if prefix != "functions":
        return refused(CallStatus.UNKNOWN_TOOL, f"there is no recipient {recipient[:80]!r}")
    return call_of_text(name, message.body, tools=tools, raw=message.raw)


HARMONY = HarmonyParser()
