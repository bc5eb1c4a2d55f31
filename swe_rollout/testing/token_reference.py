"""A whole conversation as the template itself renders it, held against one made of deltas.

Real messages, real bodies, one rendering: what the template does to them shows. Only where the
template writes another beginning for a turn that is to be said than for one that was said, as many
do to drop reasoning, that beginning is passed over. Used by `testing.token_conformance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from swe_rollout.agent.template import assistant_message, messages, result_messages
from swe_rollout.testing.token_patterns import TOOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.agent.renderer import Renderer
    from swe_rollout.agent.tools.base import ToolSpec
    from swe_rollout.testing.token_patterns import Pattern, Round
    from swe_rollout.testing.token_policy import Policy
    from swe_rollout.trajectory import ToolCall

_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a conversation made of deltas is not what the template renders."""

    round: int
    ours: str
    template: str

    def __str__(self) -> str:
        """For people."""
        return f"round {self.round}: deltas have {self.ours!r}, the template {self.template!r}"


def difference(renderer: Renderer, policy: Policy, pattern: Pattern) -> Difference | None:
    """Where deltas and the template's rendering of the whole part; none when they never do.

    Raises what the template raises.
    """
    return _Comparison(renderer, policy, pattern).run()


class _Comparison:
    def __init__(self, renderer: Renderer, policy: Policy, pattern: Pattern) -> None:
        self._renderer = renderer
        self._policy = policy
        self._pattern = pattern
        dialect = renderer.grammar.dialect
        self._tools: Sequence[ToolSpec] = TOOLS if dialect.tells_tools else ()
        self._stops = [renderer.decode([i]) for i in renderer.stop_token_ids]
        self._calls = self._all_calls()
        self._whole = self._render(len(pattern.rounds), prompted=True)
        self._at = 0
        self._round = 0

    def _all_calls(self) -> list[tuple[ToolCall, ...]]:
        calls: list[tuple[ToolCall, ...]] = []
        for each in self._pattern.rounds:
            calls.append(self._policy.meant(each.calls, sum(map(len, calls))))
        return calls

    def run(self) -> Difference | None:
        renderer, first = self._renderer, self._policy.lasting(self._pattern.first)
        if (found := self._passed(renderer.prompt(first, self._tools).ids, 0)) is not None:
            return found
        for index, each in enumerate(self._pattern.rounds):
            said = self._sampled()
            if said is None:
                return self._here("a turn that ends", index)
            delta = renderer.delta(
                self._policy.encode(said)[-1],
                self._calls[index],
                results=each.results,
                tools=self._tools,
            )
            if (found := self._passed(delta.ids, index + 1)) is not None:
                return found
        rest = self._whole[self._at :]
        return self._here("", len(self._pattern.rounds)) if rest else None

    def _sampled(self) -> str | None:
        """The next turn, as the template writes it; up to the first token that ends one."""
        text, at = self._whole, self._at
        ends = [found + len(stop) for stop in self._stops if (found := text.find(stop, at)) >= 0]
        if not ends:
            return None
        self._at = min(ends)
        return text[at : self._at]

    def _passed(self, ids: Sequence[int], rounds: int) -> Difference | None:
        """Step over what the harness says before the turn after `rounds`; what is different."""
        said = self._policy.comparable(self._policy.text(ids))
        if self._whole.startswith(said, self._at):
            self._at += len(said)
            return None
        begun = self._render(rounds, prompted=True)
        begun = begun.removeprefix(self._render(rounds, prompted=False))
        head = said.removesuffix(begun)
        if len(head) == len(said) or not self._whole.startswith(head, self._at):
            return self._here(said, rounds)
        self._at += len(head)
        self._at += same(self._whole[self._at :], begun)
        return None

    def _here(self, said: str, index: int) -> Difference:
        rest = self._whole[self._at :]
        start = max(0, same(said, rest) - _SHOWN // 3)
        return Difference(index, said[start : start + _SHOWN], rest[start : start + _SHOWN])

    def _render(self, rounds: int, *, prompted: bool) -> str:
        """The conversation after so many rounds."""
        first = self._policy.lasting(self._pattern.first)
        said = messages(first, [message.content for message in first])
        for each, calls in zip(self._pattern.rounds[:rounds], self._calls, strict=False):
            said += self._messages(each, calls)
        text = self._renderer.template.render(said, self._tools, prompted=prompted)
        return self._policy.comparable(text)

    def _messages(self, each: Round, calls: Sequence[ToolCall]) -> list[dict[str, object]]:
        dialect = self._renderer.grammar.dialect
        return [
            assistant_message(each.content, calls, dialect),
            *result_messages(calls, each.results, dialect),
        ]


def same(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
