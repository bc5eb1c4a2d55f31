"""The model under test: its sampled conversations, other segmentations of them, and check results.

The canonical segmentation of a text is the tokenizer's. A model also samples others: rarely, but
almost surely over thousands of tokens. Pieces come from the vocabulary itself, so the bytes of the
text do not change.

Used by `testing.tokens.checks` and `testing.tokens.delta_checks`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Protocol, TypeAlias, cast

from swe_rollout.agent import template
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import SweRolloutError
from swe_rollout.testing.tokens.patterns import TOOLS, ConversationPattern, patterns
from swe_rollout.testing.tokens.subjects import PrefixStats, TokenLogSubject, play_conversation
from swe_rollout.testing.tokens.synthetic_policy import SampledTurn, SyntheticPolicy

Resegmenter: TypeAlias = Callable[["SampledTurn"], "SampledTurn"]
"""Returns a turn with the same text in other tokens."""
TEMPLATE_ERRORS: Final = (*template.TEMPLATE_ERRORS, SweRolloutError, OSError, RuntimeError)
"""Errors that an unknown template or vocabulary may raise."""
_REPEATS: Final = 5
_SHOWN_PROBLEMS: Final = 3
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_LONGEST_KEPT = 2


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    """What was tried, or what is wrong if the check failed."""
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


class Vocabulary(Protocol):
    """The part of `tokenizers.Tokenizer` used here."""

    def get_vocab(self, with_added_tokens: bool) -> Mapping[str, int]:  # noqa: FBT001 - its own
        """Return token ids by piece."""
        ...


class Segmenter:
    """Resegment token ids. Control tokens stay whole, and no two text pieces ever form one."""

    def __init__(self, vocabulary: Vocabulary, controls: Container[int]) -> None:
        pieces = vocabulary.get_vocab(False)  # noqa: FBT003 - its own form
        # SentencePiece byte tokens (`<0x41>`) are not text that can be split.
        self._ids = {
            piece: i for piece, i in pieces.items() if i not in controls and not _BYTE.match(piece)
        }
        self._pieces = {i: piece for piece, i in self._ids.items()}
        self._longest = max(map(len, self._ids), default=0)

    def noisy(self, ids: Sequence[int], share: float, rng: random.Random) -> list[int]:
        """Split this share of the tokens of more than 2 characters in two, at random places."""
        resegmented: list[int] = []
        for i in ids:
            piece = self._pieces.get(i, "")
            is_cut = len(piece) > _LONGEST_KEPT and rng.random() < share
            resegmented += (self._halves(piece, rng) if is_cut else None) or [i]
        return resegmented

    def random_cuts(self, ids: Sequence[int], rng: random.Random) -> list[int]:
        """Cut the same text into pieces of random lengths, ignoring the canonical segmentation."""
        resegmented: list[int] = []
        for is_text, run in groupby(ids, key=self._pieces.__contains__):
            kept = list(run)
            text = "".join(self._pieces[i] for i in kept) if is_text else ""
            resegmented += (self._random_pieces(text, rng) if is_text else None) or kept
        return resegmented

    def _halves(self, piece: str, rng: random.Random) -> list[int] | None:
        cut = rng.randrange(1, len(piece))
        head, tail = self._greedy(piece[:cut]), self._greedy(piece[cut:])
        return None if head is None or tail is None else head + tail

    def _greedy(self, text: str) -> list[int] | None:
        """Cut off the longest known piece repeatedly; None if the vocabulary lacks a character."""
        ids: list[int] = []
        at = 0
        while at < len(text):
            lengths = range(min(len(text) - at, self._longest), 0, -1)
            length = next((n for n in lengths if text[at : at + n] in self._ids), None)
            if length is None:
                return None
            ids.append(self._ids[text[at : at + length]])
            at += length
        return ids

    def _random_pieces(self, text: str, rng: random.Random) -> list[int] | None:
        ids: list[int] = []
        at = 0
        while at < len(text):
            longest = min(len(text) - at, self._longest, rng.choice((1, 2, 4, 8)))
            lengths = [n for n in range(1, longest + 1) if text[at : at + n] in self._ids]
            if not lengths:
                return None
            length = rng.choice(lengths)
            ids.append(self._ids[text[at : at + length]])
            at += length
        return ids


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
        """Return a resegmenter that splits this share of the tokens, alike for every subject."""
        rng = random.Random(seed)  # noqa: S311 - no secret
        return lambda turn: self._resegmented(turn, self.segmenter.noisy(turn.ids, share, rng))

    def random_cuts(self, seed: int) -> Resegmenter:
        """Return a resegmenter that cuts turns into pieces of random lengths."""
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
