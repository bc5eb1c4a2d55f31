"""Other ways to spell one text in the tokens of a vocabulary, as a policy at temperature 1 does.

A canonical segmentation is what the tokenizer makes of a text. A model samples others too: rarely,
but over thousands of tokens surely. Pieces are taken from the vocabulary itself, so the bytes of
the text stay what they are. Used by `testing.token_conformance` and the conformance script.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Container, Mapping, Sequence

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_LONGEST_KEPT = 2


class Vocabulary(Protocol):
    """What is used of a `tokenizers.Tokenizer`."""

    def get_vocab(self, with_added_tokens: bool) -> Mapping[str, int]:  # noqa: FBT001 - its own
        """Ids by piece."""
        ...


class Segmenter:
    """Spells ids anew. Control tokens stay whole, and none comes of two halves of text."""

    def __init__(self, vocabulary: Vocabulary, controls: Container[int]) -> None:
        pieces = vocabulary.get_vocab(False)  # noqa: FBT003 - its own form
        # A byte written out, as SentencePiece has them, is no text that could be cut.
        self._ids = {
            piece: i for piece, i in pieces.items() if i not in controls and not _BYTE.match(piece)
        }
        self._pieces = {i: piece for piece, i in self._ids.items()}
        self._longest = max(map(len, self._ids), default=0)

    def noisy(self, ids: Sequence[int], share: float, rng: random.Random) -> list[int]:
        """The same text; each token of more than 2 characters is with the probability `share`
        spelled in two halves, cut at a random place.
        """
        spelled: list[int] = []
        for i in ids:
            piece = self._pieces.get(i, "")
            is_cut = len(piece) > _LONGEST_KEPT and rng.random() < share
            spelled += (self._halves(piece, rng) if is_cut else None) or [i]
        return spelled

    def scattered(self, ids: Sequence[int], rng: random.Random) -> list[int]:
        """The same text in pieces of random lengths, whatever the tokenizer would have made."""
        spelled: list[int] = []
        for is_text, run in groupby(ids, key=self._pieces.__contains__):
            kept = list(run)
            text = "".join(self._pieces[i] for i in kept) if is_text else ""
            spelled += (self._scatter(text, rng) if is_text else None) or kept
        return spelled

    def _halves(self, piece: str, rng: random.Random) -> list[int] | None:
        cut = rng.randrange(1, len(piece))
        head, tail = self._greedy(piece[:cut]), self._greedy(piece[cut:])
        return None if head is None or tail is None else head + tail

    def _greedy(self, text: str) -> list[int] | None:
        """The longest pieces first; none where the vocabulary lacks a character."""
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

    def _scatter(self, text: str, rng: random.Random) -> list[int] | None:
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
