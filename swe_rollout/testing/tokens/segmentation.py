"""Resegment text into non-canonical tokens, as a policy sampling at temperature 1 does.

The canonical segmentation is what the tokenizer produces. A model also samples others: rarely, but
almost surely over thousands of tokens. Pieces come from the vocabulary itself, so the bytes of the
text do not change. Used by `testing.tokens.conformance` and `scripts/conformance tokens`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Container, Mapping, Sequence
from itertools import groupby
from typing import Protocol

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_LONGEST_KEPT = 2


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
