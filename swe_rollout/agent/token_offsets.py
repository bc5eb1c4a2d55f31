"""Find which sampled token contains a character of a turn's text, in one pass over its tokens.

A character may span several tokens, so tokens are treated as bytes. Used by `encoding`.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Final

_REPLACEMENT: Final = "\ufffd"
_FALLBACK: Final = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, slots=True)
class TokenRun:
    """A run of ordinary ids, or of control tokens, with its start in the text and in the turn."""

    offset: int
    start: int
    ids: Sequence[int]
    text: str


class TokenBytes:
    """The bytes of each token of a vocabulary, looked up on first use."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], piece: Callable[[int], str | None]
    ) -> None:
        """`decode` returns the text of ids; `piece` returns a token as the vocabulary writes it."""
        self._decode = decode
        self._piece = piece
        self._known: dict[int, bytes] = {}
        self._single: set[int] = set()
        """Tokens that stand for one byte, in a vocabulary with byte fallback."""

    def of(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of each id."""
        known = self._known
        for each in ids:
            if each not in known:
                known[each] = self._bytes_of(each)
        return [known[each] for each in ids]

    def ends(self, ids: Sequence[int], text: str) -> list[int] | None:
        """Return the number of characters that end with each id; None if that is not known."""
        pieces = self.of(ids)
        ends = (
            _ends_by_group(pieces, [each in self._single for each in ids])
            if self._single
            else _ends_by_sequence(pieces)
        )
        return ends if len(text) == (ends[-1] if ends else 0) else None

    def _bytes_of(self, token: int) -> bytes:
        text, piece = self._decode([token]), self._piece(token) or ""
        if text != piece and (found := _FALLBACK.fullmatch(piece)):
            self._single.add(token)
            return bytes([int(found[1], 16)])
        if _REPLACEMENT not in text:
            return text.encode(errors="replace")
        values = [_byte_alphabet().get(character) for character in piece]
        return bytes(value for value in values if value is not None) or text.encode()


def _ends_by_sequence(pieces: Iterable[bytes]) -> list[int]:
    """Count as byte-level vocabularies decode: a broken sequence is one replacement character."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    ends, total = list[int](), 0
    for piece in pieces:
        total += len(decoder.decode(piece))
        ends.append(total)
    if ends:
        ends[-1] += len(decoder.decode(b"", final=True))
    return ends


def _ends_by_group(pieces: Sequence[bytes], single: Sequence[bool]) -> list[int]:
    """Count as byte fallback decodes: consecutive bytes are decoded together; if that fails, each
    is one replacement character.
    """
    ends, total = list[int](), 0
    for is_single, group in groupby(zip(pieces, single, strict=True), key=itemgetter(1)):
        run = [piece for piece, _ in group]
        try:
            b"".join(run).decode()
            inner = _ends_by_sequence(run)
        except UnicodeDecodeError:
            inner = list(range(1, len(run) + 1)) if is_single else _ends_by_sequence(run)
        ends += [total + each for each in inner]
        total = ends[-1]
    return ends


@cache
def _byte_alphabet() -> dict[str, int]:
    """Return the byte for each character with which byte-level vocabularies write bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in plain} | shifted


class TokenOffsets:
    """Finds tokens by offsets in a turn's text; counts the characters of each run once."""

    def __init__(
        self, runs: Sequence[TokenRun], ends: Callable[[TokenRun], Sequence[int] | None]
    ) -> None:
        """`ends` returns the number of characters that end with each id of a run."""
        self._runs = runs
        self._offsets = [run.offset for run in runs]
        self._ends_of = ends
        self._ends: dict[int, Sequence[int] | None] = {}

    def __call__(self, offset: int) -> int | None:
        """Return the token that completes the character at an offset; None if it is not known."""
        if not self._runs:
            return 0
        index = bisect_right(self._offsets, offset) - 1
        run = self._runs[index]
        if offset - run.offset >= len(run.text):
            return run.start + len(run.ids)
        if index not in self._ends:
            self._ends[index] = self._ends_of(run)
        ends = self._ends[index]
        return None if ends is None else run.start + bisect_right(ends, offset - run.offset)
