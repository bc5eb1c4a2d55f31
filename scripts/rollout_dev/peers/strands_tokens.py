"""strands-sglang's bookkeeping: `tokenize_prompt_messages` and its `Rollout`, as `stream` does it.

No model is called; the steps around a call in its model class are repeated here in order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from strands_sglang import SGLangClient, SGLangModel

from rollout_dev.peers.tokens import Start, UnknownFamilyError, functions
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.testing.tokens.subjects import GivenTurn, TokenSubject
from swe_rollout.types.turn import ToolCall


class _Rollout(Protocol):
    token_ids: list[int]

    def add_prompt(self, token_ids: list[int]) -> None: ...
    def add_response(self, token_ids: list[int], logprobs: list[float]) -> None: ...


class _Model(Protocol):
    rollout: _Rollout
    processed_messages: int

    def tokenize_prompt_messages(
        self,
        messages: list[dict[str, object]],
        system_prompt: str | None,
        tool_specs: list[dict[str, object]] | None,
    ) -> list[int]: ...


def start(renderer: Renderer) -> Start:
    """Start conversations; raises UnknownFamilyError if it can't end a turn."""
    tokenizer = renderer.tokenizer
    try:
        # It computes the separator after a turn only once per model.
        _made(tokenizer).message_separator  # noqa: B018 - computed on access
    except IndexError as error:
        raise UnknownFamilyError("it finds no end of a turn in this template") from error
    return lambda: _Strands(cast("_Model", _made(tokenizer)))


def _made(tokenizer: object) -> SGLangModel:
    # Nothing is sent, so the address is never used.
    return SGLangModel(client=SGLangClient("http://127.0.0.1:9"), tokenizer=tokenizer)


def tool_specs(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    """Return the tools in strands' format."""
    return [
        {
            "name": function["name"],
            "description": function["description"],
            "inputSchema": {"json": function["parameters"]},
        }
        for function in functions([tool.function() for tool in tools])
    ]


class _Strands(TokenSubject):
    def __init__(self, model: _Model) -> None:
        self._model = model
        self._messages: list[dict[str, object]] = []
        self._new: list[int] = []
        self._ids: list[str] = []
        self._calls = 0

    def start(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[int]:
        system = "".join(m.content for m in first if m.role is MessageRole.SYSTEM)
        self._messages = [
            {"role": "user", "content": [{"text": m.content}]}
            for m in first
            if m.role is MessageRole.USER
        ]
        self._new = self._model.tokenize_prompt_messages(
            self._messages, system or None, tool_specs(tools)
        )
        return self._new

    def add_turn(self, turn: GivenTurn) -> None:
        model = self._model
        model.rollout.add_prompt(self._new)
        model.rollout.add_response(list(turn.ids), list(turn.logprobs))
        model.processed_messages = len(self._messages) + 1
        # Results are sorted by these ids.
        self._ids = [f"call_{self._calls + index:06}" for index in range(len(turn.calls))]
        self._calls += len(turn.calls)
        uses = [_use(call, name) for call, name in zip(turn.calls, self._ids, strict=True)]
        self._messages.append({"role": "assistant", "content": [{"text": turn.text}, *uses]})

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        content = [_result(text, name) for text, name in zip(texts, self._ids, strict=True)]
        self._messages.append({"role": "user", "content": content})
        self._new = self._model.tokenize_prompt_messages(self._messages, None, None)
        return self._model.rollout.token_ids + self._new


def _use(call: ToolCall, name: str) -> Mapping[str, object]:
    tool = re.sub(r"\W", "_", call.name) or "unknown"
    return {"toolUse": {"toolUseId": name, "name": tool, "input": call.arguments}}


def _result(text: str, name: str) -> Mapping[str, object]:
    return {"toolResult": {"toolUseId": name, "status": "success", "content": [{"text": text}]}}
