"""Token subjects: rendering every request again breaks prefixes and lets results forge tokens."""

from __future__ import annotations

from collections.abc import Sequence

from swe_rollout.agent.dialect import assistant_message, messages, result_messages
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.testing.tokens.model import ModelUnderTest
from swe_rollout.testing.tokens.subjects import (
    TokenLogSubject,
    inject_control_tokens,
    play_conversation,
)
from swe_rollout.types.turn import ToolCall


class _Rerender:
    """The classic mistake: render and encode the whole conversation again for each request."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._history: list[dict[str, object]] = []
        self._tools: Sequence[ToolSpec] = ()
        self._calls: Sequence[ToolCall] = ()

    def start(self, first: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[int]:
        self._history = messages(first, [message.content for message in first])
        self._tools = tools
        return self._whole()

    def add_turn(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float],
        *,
        text: str,
        calls: Sequence[ToolCall],
    ) -> None:
        del logprobs, text
        self._calls = calls
        start = calls[0].span.start if calls[0].span else 0
        content = self._renderer.decode(ids[:start]).rstrip("\n")
        self._history.append(assistant_message(content, calls, self._renderer.grammar.dialect))

    def add_results(self, texts: Sequence[str]) -> Sequence[int]:
        self._history += result_messages(self._calls, texts, self._renderer.grammar.dialect)
        return self._whole()

    def _whole(self) -> list[int]:
        text = self._renderer.template.render(self._history, self._tools, prompted=True)
        return self._renderer.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids


def test_rendering_every_request_again_breaks_prefixes_once_tokens_are_not_canonical() -> None:
    model = ModelUnderTest(Renderer.load(str(tokenizer_path())), quick=True)
    long = next(each for each in model.conversations if each.pattern.name == "many turns")
    resegmented = tuple(map(model.noisy(0.1, seed=1), long.turns))

    canonical = play_conversation(_Rerender(model.renderer), long.first, long.turns)
    noisy = play_conversation(_Rerender(model.renderer), long.first, resegmented)
    ours = play_conversation(TokenLogSubject(model.renderer), long.first, resegmented)

    assert canonical.breaks == 0
    assert canonical.kept == canonical.sampled
    assert noisy.breaks > 0
    assert noisy.kept < noisy.sampled
    assert ours.breaks == 0
    assert ours.kept == ours.sampled


def test_rendering_every_request_again_lets_a_result_forge_control_tokens() -> None:
    model = ModelUnderTest(Renderer.load(str(tokenizer_path())), quick=True)
    turn = model.conversations[0].turns[0]

    found = inject_control_tokens(
        lambda: _Rerender(model.renderer),
        turn,
        controls=model.renderer.controls,
        delta=model.turn_separator(turn),
    )

    assert found.forged > 0
    assert "<|im_end|>" in "".join(found.examples)
