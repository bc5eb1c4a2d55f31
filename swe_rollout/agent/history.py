"""Render a conversation that holds turns which were not sampled here.

A harness may come back with a history of its own: it dropped a turn, repaired a call, or went on
from a summary. Such turns are prompt, never trained on. Nothing in them can forge a control token.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from swe_rollout.agent.dialect import (
    Dialect,
    Quoting,
    answer_messages,
    assistant_message,
    earlier_messages,
)
from swe_rollout.agent.encoding import Body, Scaffold
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.template import TEMPLATE_ERRORS, ChatTemplate
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import ToolCall

_SHOWN: Final = 200


class UnfitHistoryError(ValueError):
    """The template can't show a conversation."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A turn of the policy as a harness tells it, and what came after it."""

    said: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[str, ...] = ()
    """The results of the first calls, in their order."""
    message: str = ""
    """What the user said after the results; empty if nothing."""


@dataclass(slots=True)
class _StandIns:
    """Unguessable placeholders for texts from outside, in the order of the conversation."""

    controls: Collection[str]
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    bodies: list[str | _Argument] = field(default_factory=list)

    def text(self, text: str, quoting: Quoting = Quoting.RAW) -> str:
        self.bodies.append(quoting.apply(text))
        return f"body{self.nonce}x{len(self.bodies) - 1}x"

    def arguments(self, given: Mapping[str, object]) -> dict[str, object]:
        # Names are the template's own text, so one that could forge a token is not shown.
        return {
            f"invalid{at}" if self._forges(name) else name: self._argument(value)
            for at, (name, value) in enumerate(given.items())
        }

    def _argument(self, value: object) -> str:
        self.bodies.append(_Argument(value))
        return f"value{self.nonce}x{len(self.bodies) - 1}x"

    def _forges(self, name: str) -> bool:
        return any(each in name for each in self.controls if each.strip())

    def parts(self, rendered: str) -> list[Scaffold | Body]:
        """Return the template's text with the bodies in place. Raises UnfitHistoryError."""
        pattern = rf"body{self.nonce}x(\d+)x|(['\"]?)value{self.nonce}x(\d+)x\2"
        parts: list[Scaffold | Body] = []
        at = shown = 0
        for found in re.finditer(pattern, rendered):
            number = int(found[1] or found[3])
            if number != shown:
                break
            parts.append(Scaffold(rendered[at : found.start()]))
            match self.bodies[number]:
                case _Argument() as argument:
                    parts.append(Body(argument.written(found[2])))
                case text:
                    parts.append(Body(text))
            at, shown = found.end(), shown + 1
        if shown != len(self.bodies):
            raise UnfitHistoryError(f"it leaves out or moves text number {shown + 1}")
        return [*parts, Scaffold(rendered[at:])]


@dataclass(frozen=True, slots=True)
class _Argument:
    value: object

    def written(self, quote: str) -> str:
        """Return the value as the template quotes it."""
        if quote == "'":
            return repr(self.value)
        if not quote and isinstance(self.value, str):
            return self.value
        return json.dumps(self.value, ensure_ascii=False)


def history(
    first: Sequence[Message],
    exchanges: Sequence[Exchange],
    tools: Sequence[ToolSpec],
    template: ChatTemplate,
    dialect: Dialect,
    *,
    controls: Collection[str],
    told: str = "",
) -> list[Scaffold | Body]:
    """Return a whole conversation as a prompt. Raises UnfitHistoryError if the template can't.

    Some templates leave out what a turn with calls says. `told` describes the tools, if the
    template does not. A system message in which none of `controls` stands is written as the
    template's own text, as in an episode's first prompt.
    """
    try:
        return _history(first, exchanges, tools, template, dialect, controls=controls, told=told)
    except UnfitHistoryError:
        silent = [replace(each, said="" if each.calls else each.said) for each in exchanges]
        return _history(first, silent, tools, template, dialect, controls=controls, told=told)


def _history(
    first: Sequence[Message],
    exchanges: Sequence[Exchange],
    tools: Sequence[ToolSpec],
    template: ChatTemplate,
    dialect: Dialect,
    *,
    controls: Collection[str],
    told: str,
) -> list[Scaffold | Body]:
    stand_ins = _StandIns(controls)
    conversation: list[dict[str, object]] = []
    for message in first if dialect.has_system else _without_system(first):
        is_plain = message.role is MessageRole.SYSTEM and not any(
            each in message.content for each in controls
        )
        shown = (
            message.content
            if is_plain
            else stand_ins.text(message.content, _quoting(message, dialect))
        )
        conversation.append({"role": message.role.value, "content": f"{shown}{told}"})
        told = ""
    for exchange in (part for each in exchanges for part in _parted(each, dialect)):
        conversation += _messages(exchange, stand_ins, dialect)
    try:
        rendered = template.render(conversation, tools, prompted=True)
    except TEMPLATE_ERRORS as error:
        raise UnfitHistoryError(str(error)[:_SHOWN]) from error
    return stand_ins.parts(rendered)


def _without_system(first: Sequence[Message]) -> list[Message]:
    """Return the first messages with those of the system at the start of the user's."""
    text = "\n\n".join(message.content for message in first)
    return [Message(MessageRole.USER, text)]


def _quoting(message: Message, dialect: Dialect) -> Quoting:
    return dialect.user if message.role is MessageRole.USER else Quoting.RAW


def _parted(exchange: Exchange, dialect: Dialect) -> list[Exchange]:
    """Split a turn for a template that takes one call a turn."""
    if not (dialect.one_call and exchange.calls[1:]):
        return [exchange]
    last = len(exchange.calls) - 1
    return [
        Exchange(
            exchange.said if not at else "",
            (call,),
            exchange.results[at : at + 1],
            exchange.message if at == last else "",
        )
        for at, call in enumerate(exchange.calls)
    ]


def _messages(
    exchange: Exchange, stand_ins: _StandIns, dialect: Dialect
) -> list[dict[str, object]]:
    shows_text = bool(exchange.said) and (dialect.speaks_with_calls or not exchange.calls)
    said = stand_ins.text(exchange.said) if shows_text else ""
    calls = [
        replace(call, arguments=stand_ins.arguments(call.arguments)) for call in exchange.calls
    ]
    answered = calls[: len(exchange.results)]
    results = [stand_ins.text(each, dialect.result) for each in exchange.results]
    messages = [stand_ins.text(exchange.message, dialect.user)] if exchange.message else []
    return [
        *earlier_messages(calls, dialect),
        assistant_message(said, calls, dialect),
        *answer_messages(answered, results, messages, dialect),
    ]
