"""Two ways to keep tokens without a library: the least possible work, and the classic mistake.

The floor appends a hand-written delta for ChatML. It checks nothing, masks nothing and lets
external text forge control tokens, so it takes only the time of the encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollout_dev.peers.tokens import Start, UnknownFamilyError
from swe_rollout.agent.dialect import assistant_message, messages, result_messages
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tokens.subjects import GivenTurn, TokenSubject
from swe_rollout.types.turn import ToolCall


def floor(renderer: Renderer) -> Start:
    """Start conversations with the hand-written delta; UnknownFamilyError except for ChatML."""
    if renderer.grammar.family.name != "chatml" or renderer.tool_format != ToolFormat.HERMES:
        raise UnknownFamilyError("its delta is written for ChatML with Hermes calls")
    return lambda: _Floor(renderer)


def rerender(renderer: Renderer) -> Start:
    """Start conversations that are rendered and encoded from scratch for each request."""
    return lambda: _Rerender(renderer)


class _Floor(TokenSubject):
    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._backend = renderer.tokenizer.backend_tokenizer
        self._ids: list[int] = []

    def start(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[int]:
        rendered = _whole(self._renderer, messages(first, [m.content for m in first]), tools)
        self._ids = self._encode(rendered)
        return self._ids

    def add_turn(self, turn: GivenTurn) -> None:
        self._ids += turn.ids

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        self._ids += self._encode(written_delta(texts))
        return self._ids

    def _encode(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids


def written_delta(texts: Sequence[str]) -> str:
    """Return the text of ChatML between two turns, tool results included."""
    bodies = "".join(f"\n<tool_response>\n{text}\n</tool_response>" for text in texts)
    return f"\n<|im_start|>user{bodies}<|im_end|>\n<|im_start|>assistant\n"


class _Rerender(TokenSubject):
    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._history: list[dict[str, object]] = []
        self._tools: Sequence[ToolSpec] = ()
        self._calls: Sequence[ToolCall] = ()

    def start(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[int]:
        self._tools = tools
        self._history = messages(first, [message.content for message in first])
        return self._render()

    def add_turn(self, turn: GivenTurn) -> None:
        self._calls = turn.calls
        self._history.append(spoken(self._renderer, turn))

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        dialect = self._renderer.grammar.dialect
        self._history += result_messages(self._calls, texts, dialect)
        return self._render()

    def _render(self) -> list[int]:
        text = _whole(self._renderer, self._history, self._tools)
        return self._renderer.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids


def spoken(renderer: Renderer, turn: GivenTurn) -> dict[str, object]:
    """Return a turn's message as an OpenAI server would: its text up to the first call."""
    sampled = renderer.sampled(turn.ids)
    marks = renderer.reasoning(opened=False)
    closed = sampled.find(marks.closer, 0)
    start = 0 if closed is None else closed + len(marks.closer)
    ends = [mark.start for mark in sampled.marks if mark.start >= start]
    first = [call.span.start for call in turn.calls[:1] if call.span]
    ends += [len(renderer.decode(turn.ids[:at])) for at in first]
    reasoning = sampled.text[:closed].removeprefix(marks.opener) if closed is not None else ""
    content = sampled.text[start : min(ends, default=len(sampled.text))]
    dialect = renderer.grammar.dialect
    return assistant_message(content.strip(), turn.calls, dialect, reasoning=reasoning.strip())


def _whole(renderer: Renderer, history: list[dict[str, object]], tools: Sequence[ToolSpec]) -> str:
    return renderer.template.render(history, tools, prompted=True)
