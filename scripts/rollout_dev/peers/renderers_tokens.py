"""renderers: one class for each family; `bridge_to_next_turn` appends new tokens to sampled ones.

If it refuses a bridge, the whole conversation is rendered again, as by its own client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

import renderers
from renderers import configs

from rollout_dev.peers.plain_tokens import spoken
from rollout_dev.peers.tokens import REFUSALS, Start, UnknownFamilyError, functions
from swe_rollout.agent.dialect import messages, result_messages
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tokens.subjects import GivenTurn, TokenSubject

_CONFIGS: Final[dict[str, str]] = {
    ToolFormat.HERMES: "Qwen3RendererConfig",
    ToolFormat.QWEN_XML: "Qwen35RendererConfig",
    ToolFormat.GLM45: "GLM45RendererConfig",
    ToolFormat.GLM47: "GLM5RendererConfig",
    ToolFormat.KIMI_K2: "KimiK2RendererConfig",
    ToolFormat.DEEPSEEK_V3: "DeepSeekV3RendererConfig",
    ToolFormat.LLAMA3: "Llama3RendererConfig",
    ToolFormat.HARMONY: "GptOssRendererConfig",
    ToolFormat.MINIMAX_M2: "MiniMaxM2RendererConfig",
}
"""The configuration class for the family with this call format."""


class _Rendered(Protocol):
    token_ids: list[int]


class _Renderer(Protocol):
    def render_ids(
        self,
        messages: list[dict[str, object]],
        *,
        tools: list[Mapping[str, object]],
        add_generation_prompt: bool,
    ) -> list[int]: ...

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[dict[str, object]],
        *,
        tools: list[Mapping[str, object]],
    ) -> _Rendered | None: ...


def start(renderer: Renderer) -> Start:
    """Start conversations; raises UnknownFamilyError if it has no class for the model."""
    name = _CONFIGS.get(renderer.tool_format)
    if name is None:
        raise UnknownFamilyError(f"it has no renderer for calls as {renderer.tool_format}")
    try:
        made = renderers.create_renderer(renderer.tokenizer, getattr(configs, name)())
    except REFUSALS as error:
        text = str(error).partition("\n")[0]
        raise UnknownFamilyError(f"its {name} refuses this vocabulary: {text}") from error
    return lambda: _Bridge(renderer, cast("_Renderer", made))


class _Bridge(TokenSubject):
    def __init__(self, own: Renderer, theirs: _Renderer) -> None:
        self._own = own
        self._theirs = theirs
        self._first: Sequence[Message] = ()
        self._turns: list[GivenTurn] = []
        self._results: list[list[dict[str, object]]] = []
        self._tools: list[Mapping[str, object]] = []
        self._prompt: list[int] = []

    def start(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[int]:
        self._first = first
        self._tools = functions([tool.function() for tool in tools])
        self._prompt = self._whole()
        return self._prompt

    def add_turn(self, turn: GivenTurn) -> None:
        self._turns.append(turn)

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        turn = self._turns[-1]
        new = result_messages(turn.calls, texts, self._own.grammar.dialect)
        self._results.append(new)
        bridged = self._theirs.bridge_to_next_turn(
            self._prompt, list(turn.ids), new, tools=self._tools
        )
        self._prompt = self._whole() if bridged is None else bridged.token_ids
        return self._prompt

    def _whole(self) -> list[int]:
        history = messages(self._first, [message.content for message in self._first])
        for turn, results in zip(self._turns, self._results, strict=True):
            history += [spoken(self._own, turn), *results]
        return self._theirs.render_ids(history, tools=self._tools, add_generation_prompt=True)
