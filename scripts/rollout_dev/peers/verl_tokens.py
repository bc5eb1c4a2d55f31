"""verl's continuous tokens: a builder for each family merges turns and messages into one list.

verl itself needs ray and torch; its builders need neither, so they are loaded from its wheel
without the enclosing package.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol

from rollout_dev.peers.tokens import REFUSALS, Start, UnknownFamilyError
from swe_rollout.agent.dialect import assistant_message, messages, result_messages
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.testing.tokens.subjects import GivenTurn, TokenSubject
from swe_rollout.types.turn import ToolCall

if TYPE_CHECKING:
    _Messages = list[dict[str, object]]

_ALONE = "verl_tokenizer_alone"
_BUILDERS: Final = {
    "chatml": "QwenContinuousTokenBuilder",
    "glm": "GLMContinuousTokenBuilder",
    "harmony": "GptOssContinuousTokenBuilder",
    "minimax_m2": "MiniMaxContinuousTokenBuilder",
    "deepseek": "DeepSeekContinuousTokenBuilder",
}
"""The builders by family; all other families use the plain builder."""
_PLAIN = "ContinuousTokenBuilder"


class _Merged(Protocol):
    token_ids: list[int]


class _Builder(Protocol):
    def build_initial_tokens(self, messages: _Messages, *, tools: _Messages) -> list[int]: ...

    def merge_assistant_tokens(
        self, runtime_token_ids: list[int], assistant_token_ids: list[int]
    ) -> _Merged: ...

    def merge_context_tokens(
        self,
        previous_messages: _Messages,
        updated_messages: _Messages,
        runtime_token_ids: list[int],
        *,
        tools: _Messages,
    ) -> _Merged: ...


def start(renderer: Renderer) -> Start:
    """Start conversations; raises UnknownFamilyError if the builder refuses the model."""
    name = _BUILDERS.get(renderer.grammar.family.name, _PLAIN)
    made: Callable[[object], _Builder] = getattr(_module(), name)
    try:
        builder = made(renderer.tokenizer)
    except REFUSALS as error:
        text = str(error).partition("\n")[0]
        raise UnknownFamilyError(f"its {name} refuses this vocabulary: {text}") from error
    return lambda: _Merge(renderer, builder)


def _module() -> ModuleType:
    if _ALONE not in sys.modules:
        found = importlib.util.find_spec("verl")
        if found is None or found.origin is None:
            raise UnknownFamilyError("verl is not installed")
        alone = ModuleType(_ALONE)
        alone.__path__ = [str(Path(found.origin).parent / "utils" / "tokenizer")]
        sys.modules[_ALONE] = alone
    return import_module(f"{_ALONE}.continuous_token")


class _Merge(TokenSubject):
    def __init__(self, renderer: Renderer, builder: _Builder) -> None:
        self._renderer = renderer
        self._builder = builder
        self._history: _Messages = []
        self._tools: _Messages = []
        self._calls: Sequence[ToolCall] = ()
        self._ids: list[int] = []

    def start(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[int]:
        self._tools = [tool.function() for tool in tools]
        self._history = messages(first, [message.content for message in first])
        self._ids = self._builder.build_initial_tokens(self._history, tools=self._tools)
        return self._ids

    def add_turn(self, turn: GivenTurn) -> None:
        self._calls = turn.calls
        self._ids = self._builder.merge_assistant_tokens(self._ids, list(turn.ids)).token_ids
        dialect = self._renderer.grammar.dialect
        self._history.append(assistant_message(turn.text, turn.calls, dialect))

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        new = result_messages(self._calls, texts, self._renderer.grammar.dialect)
        whole = [*self._history, *new]
        merged = self._builder.merge_context_tokens(
            self._history, whole, self._ids, tools=self._tools
        )
        self._history, self._ids = whole, merged.token_ids
        return self._ids
