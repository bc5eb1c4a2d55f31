"""What the token checks share: a model's conversations, said once, and others' ways to spell them.

Used by `testing.token_checks` and `testing.token_delta_checks`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import jinja2

from swe_rollout.errors import SweRolloutError
from swe_rollout.testing.segmentation import Segmenter
from swe_rollout.testing.token_patterns import TOOLS, patterns
from swe_rollout.testing.token_policy import Policy
from swe_rollout.testing.token_subjects import OwnSubject, Played, play

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swe_rollout.agent.prompts import Message
    from swe_rollout.agent.renderer import Renderer
    from swe_rollout.testing.segmentation import Vocabulary
    from swe_rollout.testing.token_patterns import Pattern
    from swe_rollout.testing.token_policy import Said

Speller: TypeAlias = Callable[["Said"], "Said"]
"""Spells a turn in other tokens."""
TROUBLE: Final = (
    SweRolloutError,
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a template or a vocabulary that nobody here has seen may raise."""
_REPEATS: Final = 5
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, and whether it does."""

    name: str
    passed: bool
    detail: str
    """What was tried; what is wrong where it is."""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A pattern in the words and tokens of one model."""

    pattern: Pattern
    first: Sequence[Message]
    turns: tuple[Said, ...]

    @property
    def is_plain(self) -> bool:
        """Whether every call in it is whole, and no control token is spelled out in it."""
        return not self.pattern.has_template_text and not any(
            each.is_cut_short for each in self.pattern.rounds
        )


@dataclass(frozen=True, slots=True)
class Held:
    """A conversation as our token log has it."""

    subject: OwnSubject
    played: Played
    spelled: tuple[tuple[int, ...], ...]
    """The sampled ids, turn by turn."""


class Stage:
    """One model, its conversations and its vocabulary."""

    def __init__(self, renderer: Renderer, *, quick: bool = False) -> None:
        """Conversations that the template can't write are told in `unsaid`."""
        self.renderer = renderer
        self.policy = Policy(renderer)
        backend = renderer.tokenizer.backend_tokenizer
        self.segmenter = Segmenter(cast("Vocabulary", backend), renderer.controls)
        self.repeats = 1 if quick else _REPEATS
        self.unsaid: list[str] = []
        self.conversations = tuple(self._conversations())

    def _conversations(self) -> list[Conversation]:
        said: list[Conversation] = []
        for pattern in patterns():
            if pattern.is_parallel and self.renderer.grammar.dialect.one_call:
                continue
            try:
                turns = self.policy.play(pattern)
            except TROUBLE as error:
                self.unsaid.append(f"{pattern.name}: {words(error)}")
            else:
                said.append(Conversation(pattern, self.policy.first(pattern), turns))
        return said

    def hold(self, conversation: Conversation, spell: Speller) -> Held:
        """Take a conversation through our own token log."""
        subject = OwnSubject(self.renderer)
        turns = tuple(map(spell, conversation.turns))
        played = play(subject, conversation.first, turns)
        return Held(subject, played, tuple(said.ids for said in turns))

    def between(self, said: Said) -> str:
        """The end of a turn and what stands between it and the next, for a short result."""
        delta = self.renderer.delta(said.ids[-1], said.calls, results=said.results, tools=TOOLS)
        return self.renderer.decode([said.ids[-1], *delta.ids])

    def behind(self, said: Said) -> str:
        """What a turn says once its reasoning, if it has some, is over."""
        closer = self.renderer.reasoning(opened=False).closer
        is_marked = said.opens_reasoning or closer in self.renderer.controls.values()
        head, mark, tail = said.text.partition(closer)
        return tail if mark and is_marked and head else said.text

    def noisy(self, share: float, seed: int) -> Speller:
        """Spells this share of the tokens in two halves, the same ones for every subject."""
        rng = random.Random(seed)  # noqa: S311 - no secret
        return lambda said: self._respelled(said, self.segmenter.noisy(said.ids, share, rng))

    def scattered(self, seed: int) -> Speller:
        """Spells turns in pieces of random lengths."""
        rng = random.Random(seed)  # noqa: S311 - no secret
        return lambda said: self._respelled(said, self.segmenter.scattered(said.ids, rng))

    def _respelled(self, said: Said, ids: Sequence[int]) -> Said:
        return said if tuple(ids) == said.ids else self.policy.respelled(said, ids)


def share_name(noise: float) -> str:
    """`trained_share_0_2` for noise of 0.2 %."""
    return "trained_share_" + f"{noise * 100:g}".replace(".", "_")


def as_it_is(said: Said) -> Said:
    """Spells a turn as the tokenizer does."""
    return said


def words(error: Exception) -> str:
    """An error in one line."""
    text = str(error).partition("\n")[0][:400]
    return text if isinstance(error, SweRolloutError) else f"{type(error).__name__}: {text}"


def told(
    name: str, problems: Sequence[str], well: str, *, figures: Mapping[str, float] | None = None
) -> Check:
    """A check that passed where there are no problems; the first of them where there are."""
    if not problems:
        return Check(name, passed=True, detail=well, figures=figures or {})
    unique = list(dict.fromkeys(problems))
    more = f"; and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
    detail = "; ".join(unique[:_SHOWN]) + more
    return Check(name, passed=False, detail=detail, figures=figures or {})
