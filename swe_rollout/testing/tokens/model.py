"""The model under test: its sampled conversations, other segmentations of them, and check results.

Used by `testing.tokens.checks` and `testing.tokens.delta_checks`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from swe_rollout.agent import template
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import SweRolloutError
from swe_rollout.testing.tokens.patterns import TOOLS, ConversationPattern, patterns
from swe_rollout.testing.tokens.segmentation import Segmenter, Vocabulary
from swe_rollout.testing.tokens.subjects import PrefixStats, TokenLogSubject, play_conversation
from swe_rollout.testing.tokens.synthetic_policy import SampledTurn, SyntheticPolicy

Resegmenter: TypeAlias = Callable[["SampledTurn"], "SampledTurn"]
"""Returns a turn with the same text in other tokens."""
TEMPLATE_ERRORS: Final = (*template.TEMPLATE_ERRORS, SweRolloutError, OSError, RuntimeError)
"""Errors that an unknown template or vocabulary may raise."""
_REPEATS: Final = 5
_SHOWN_PROBLEMS: Final = 3


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """What was tried; what is wrong if it failed."""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A pattern as one model samples it."""

    pattern: ConversationPattern
    first: Sequence[Message]
    turns: tuple[SampledTurn, ...]

    @property
    def is_plain(self) -> bool:
        """Whether every call is whole and no text spells out a control token."""
        return not self.pattern.has_template_text and not any(
            scripted.is_cut_short for scripted in self.pattern.turns
        )


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """A conversation as our token log recorded it."""

    subject: TokenLogSubject
    stats: PrefixStats
    sampled: tuple[tuple[int, ...], ...]
    """The sampled ids, turn by turn."""


class ModelUnderTest:
    """One model, its sampled conversations and its vocabulary."""

    def __init__(self, renderer: Renderer, *, quick: bool = False) -> None:
        """Sample every pattern; `unrenderable` lists those that the template can't render."""
        self.renderer = renderer
        self.policy = SyntheticPolicy(renderer)
        backend = renderer.tokenizer.backend_tokenizer
        self.segmenter = Segmenter(cast("Vocabulary", backend), renderer.controls)
        self.repeats = 1 if quick else _REPEATS
        self.unrenderable: list[str] = []
        self.conversations = tuple(self._conversations())

    def _conversations(self) -> list[Conversation]:
        conversations: list[Conversation] = []
        for pattern in patterns():
            if pattern.is_parallel and self.renderer.grammar.dialect.one_call:
                continue
            try:
                turns = self.policy.sample(pattern)
            except TEMPLATE_ERRORS as error:
                self.unrenderable.append(f"{pattern.name}: {one_line(error)}")
            else:
                conversations.append(Conversation(pattern, self.policy.first_messages(), turns))
        return conversations

    def record(self, conversation: Conversation, resegment: Resegmenter) -> RecordedConversation:
        """Record a conversation, resegmented, in our own token log."""
        subject = TokenLogSubject(self.renderer)
        turns = tuple(map(resegment, conversation.turns))
        stats = play_conversation(subject, conversation.first, turns)
        return RecordedConversation(subject, stats, tuple(turn.ids for turn in turns))

    def turn_separator(self, turn: SampledTurn) -> str:
        """Return the end of a turn and all text up to the start of the next."""
        delta = self.renderer.delta(turn.ids[-1], turn.calls, results=turn.results, tools=TOOLS)
        return self.renderer.decode([turn.ids[-1], *delta.ids])

    def text_after_reasoning(self, turn: SampledTurn) -> str:
        """Return the text of a turn after its reasoning, if it has any."""
        closer = self.renderer.reasoning(opened=False).closer
        is_marked = turn.opens_reasoning or closer in self.renderer.controls.values()
        head, mark, tail = turn.text.partition(closer)
        return tail if mark and is_marked and head else turn.text

    def noisy(self, share: float, seed: int) -> Resegmenter:
        """Split this share of the tokens in two, the same ones for every subject."""
        rng = random.Random(seed)  # noqa: S311 - no secret
        return lambda turn: self._resegmented(turn, self.segmenter.noisy(turn.ids, share, rng))

    def random_cuts(self, seed: int) -> Resegmenter:
        """Cut turns into pieces of random lengths."""
        rng = random.Random(seed)  # noqa: S311 - no secret
        return lambda turn: self._resegmented(turn, self.segmenter.random_cuts(turn.ids, rng))

    def _resegmented(self, turn: SampledTurn, ids: Sequence[int]) -> SampledTurn:
        return turn if tuple(ids) == turn.ids else self.policy.resegmented(turn, ids)


def trained_share_key(noise: float) -> str:
    """Return the figure name for a noise level: `trained_share_0_2` for 0.2 %."""
    return "trained_share_" + f"{noise * 100:g}".replace(".", "_")


def canonical(turn: SampledTurn) -> SampledTurn:
    """Keep the tokenizer's own segmentation."""
    return turn


def one_line(error: Exception) -> str:
    """Format an error as one line of at most 400 characters."""
    text = str(error).partition("\n")[0][:400]
    return text if isinstance(error, SweRolloutError) else f"{type(error).__name__}: {text}"


def check_result(
    name: str, problems: Sequence[str], success: str, *, figures: Mapping[str, float] | None = None
) -> TokenCheck:
    """Pass without problems, with `success` as detail; otherwise fail with the first of them."""
    if not problems:
        return TokenCheck(name, passed=True, detail=success, figures=figures or {})
    unique = list(dict.fromkeys(problems))
    hidden = len(unique) - _SHOWN_PROBLEMS
    more = f"; and {hidden} more" if hidden > 0 else ""
    detail = "; ".join(unique[:_SHOWN_PROBLEMS]) + more
    return TokenCheck(name, passed=False, detail=detail, figures=figures or {})
