"""Compare a conversation built from deltas with the template's own rendering of the whole.

It renders real messages with real bodies once, so any change that the template makes shows. One
difference is tolerated: many templates open a turn differently in the generation prompt and in a
finished turn, for example to drop reasoning. Used by `testing.tokens.checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from swe_rollout.agent.dialect import messages, turn_messages
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.agent.turn_probe import common_prefix_length
from swe_rollout.testing.tokens.patterns import TOOLS, ConversationPattern
from swe_rollout.testing.tokens.synthetic_policy import SyntheticPolicy
from swe_rollout.types.turn import ToolCall

_SHOWN_CHARACTERS: Final = 60


def find_mismatch(
    renderer: Renderer, policy: SyntheticPolicy, pattern: ConversationPattern
) -> str | None:
    """Describe the first place where deltas and the template's rendering differ, if any.

    Errors of the template propagate.
    """
    return _Comparison(renderer, policy, pattern).run()


class _Comparison:
    def __init__(
        self, renderer: Renderer, policy: SyntheticPolicy, pattern: ConversationPattern
    ) -> None:
        self._renderer = renderer
        self._policy = policy
        self._pattern = pattern
        dialect = renderer.grammar.dialect
        self._tools: Sequence[ToolSpec] = TOOLS if dialect.writes_tools else ()
        self._stops = [renderer.decode([i]) for i in renderer.stop_token_ids]
        self._calls = self._all_calls()
        self._whole = self._render(len(pattern.turns), prompted=True)
        self._at = 0

    def _all_calls(self) -> list[tuple[ToolCall, ...]]:
        calls: list[tuple[ToolCall, ...]] = []
        for turn in self._pattern.turns:
            calls.append(self._policy.intended_calls(turn.calls, sum(map(len, calls))))
        return calls

    def run(self) -> str | None:
        renderer, first = self._renderer, self._policy.persistent_messages()
        if renderer.grammar.dialect.moves_prompt:
            self._at = self._policy.start_of_turn(self._history(0), self._whole)
        elif (found := self._advance(renderer.prompt(first, self._tools).ids, 0)) is not None:
            return found
        for index, turn in enumerate(self._pattern.turns):
            sampled = self._next_turn()
            if sampled is None:
                return self._mismatch("a turn that ends", index)
            delta = renderer.delta(
                self._policy.encode(sampled)[-1],
                self._calls[index],
                results=turn.results,
                tools=self._tools,
            )
            if (found := self._advance(delta.ids, index + 1)) is not None:
                return found
        rest = self._whole[self._at :]
        return self._mismatch("", len(self._pattern.turns)) if rest else None

    def _next_turn(self) -> str | None:
        """Return the next turn as the template writes it, up to its first stop token."""
        text, at = self._whole, self._at
        ends = [found + len(stop) for stop in self._stops if (found := text.find(stop, at)) >= 0]
        if not ends:
            return None
        self._at = min(ends)
        return text[at : self._at]

    def _advance(self, ids: Sequence[int], turns: int) -> str | None:
        """Skip the harness text after `turns` turns; return the mismatch if there is one."""
        ours = self._policy.comparable(self._policy.text(ids))
        if self._whole.startswith(ours, self._at):
            self._at += len(ours)
            return None
        opening = self._render(turns, prompted=True)
        closed = self._render(turns, prompted=False)
        opening = opening[common_prefix_length(opening, closed) :]
        head = ours.removesuffix(opening)
        if len(head) == len(ours) or not self._whole.startswith(head, self._at):
            return self._mismatch(ours, turns)
        self._at += len(head)
        self._at += common_prefix_length(self._whole[self._at :], opening)
        return None

    def _mismatch(self, ours: str, turn: int) -> str:
        rest = self._whole[self._at :]
        start = max(0, common_prefix_length(ours, rest) - _SHOWN_CHARACTERS // 3)
        shown = slice(start, start + _SHOWN_CHARACTERS)
        return f"turn {turn}: deltas have {ours[shown]!r}, the template {rest[shown]!r}"

    def _render(self, turns: int, *, prompted: bool) -> str:
        """Render the conversation after `turns` turns."""
        text = self._renderer.template.render(self._history(turns), self._tools, prompted=prompted)
        return self._policy.comparable(text)

    def _history(self, turns: int) -> list[dict[str, object]]:
        first = self._policy.persistent_messages()
        history = messages(first, [message.content for message in first])
        dialect = self._renderer.grammar.dialect
        for turn, calls in zip(self._pattern.turns[:turns], self._calls, strict=False):
            history += turn_messages(turn.content, calls, turn.results, dialect)
        return history
