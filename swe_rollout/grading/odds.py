"""How likely it is that whoever does not know the expected values guesses them all. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from swe_rollout.grading.wants import (
    Close,
    Computed,
    Contains,
    Equal,
    Truth,
    Value,
    Want,
    plain_leaves,
)

PROVEN: Final = 1e-3
"""Longer odds than these are no guess."""
_BITS_IN_ISSUE: Final = 1.0
"""Who understands the issue knows which of its words is meant."""
_MOST_BITS: Final = 13.0
"""A repository holds some thousands of texts; whatever is expected may be one of them."""
_BITS_OF_PLACE: Final = 16.0
"""A text of 64 KiB, the longest that is recorded, holds about as many guesses of a part."""
_BITS_PER_CHARACTER: Final = 1.0
"""About the entropy of English text, and less than that of most others."""
_BITS_PER_DIGIT: Final = math.log2(10)
_ENOUGH_BITS: Final = 1000.0
"""Smaller numbers can't be told from zero, and nobody needs them."""
_LARGEST: Final = 1e300
"""Numbers beyond can't be multiplied by a tolerance."""
_WORD: Final = re.compile(r"[^\s'\"`()\[\]{},;:=]+")


def odds(wants: Iterable[tuple[Want, bool]], visible: str, *, issue: str = "") -> float:
    """Return the probability of guessing these by somebody who can read `visible` and `issue`.

    Each comes with whether it tells: whether the base, which the agent can run, fails to meet it.
    """
    known = list(wants)
    telling = [want for want, tells in known if tells]
    values: dict[str, float] = {}
    for value, most in (pair for want in telling for pair in _values(want)):
        values[_text(value)] = max(values.get(_text(value), 0.0), most)
    words: int | None = None
    named = frozenset(_words(issue))
    bits = 0.0
    for text, most in values.items():
        if bits > _ENOUGH_BITS:
            break
        own = min(max(1.0, _bits(text) - _bits_of_words(text, named)), most)
        if text and _stands(text, issue):
            own = min(own, _BITS_IN_ISSUE)
        elif text and _stands(text, visible):
            if words is None:
                words = len(set(_WORD.findall(visible)))
            own = min(own, math.log2(words + 1))
        bits += min(own, _MOST_BITS)
    parts = {_text(want.part) for want in telling if isinstance(want, Contains)}
    for part in parts:
        # All that is visible fits into one text.
        own = min(max(0.0, _bits(part) - _BITS_OF_PLACE), _MOST_BITS)
        if own and bits <= _ENOUGH_BITS and not (_stands(part, visible) or _stands(part, issue)):
            bits += own
    answers = [(want.is_positive, tells) for want, tells in known if isinstance(want, Truth)]
    return float(2.0 ** -min(bits + _bits_of_answers(answers), _ENOUGH_BITS))


def shown(value: float) -> str:
    """Return odds for people: `1 in 40`, `1 in 2^37`."""
    if value <= 0:
        return "none"
    inverse = 1 / value
    return f"1 in {inverse:.0f}" if inverse < 1e6 else f"1 in 2^{math.log2(inverse):.0f}"  # noqa: PLR2004 (what people read)


def _values(want: Want) -> Iterator[tuple[Value, float]]:
    """Yield the values that a check asks for, and the most bits of each by its tolerance."""
    match want:
        case Equal(value):
            yield from ((each, math.inf) for each in plain_leaves(value))
        case Computed(values):
            yield from ((each, math.inf) for each in plain_leaves(values))
        case Close(values, relative, absolute):
            for each in plain_leaves(values):
                size = min(abs(each), _LARGEST) if isinstance(each, int | float) else math.inf
                allowed = max(absolute, relative * size)
                is_exact = not allowed or size == math.inf
                yield each, math.inf if is_exact else 1 + math.log2(max(1.0, size / allowed))
        case Contains() | Truth():
            pass


def _bits_of_answers(answers: list[tuple[bool, bool]]) -> float:
    """Return what yes or no are worth, for who knows how many, and guesses which.

    They may guess which checks ask for a true value, or in which the base errs.
    """
    chosen = (sum(positive for positive, _ in answers), sum(tells for _, tells in answers))
    return min(math.log2(math.comb(len(answers), each)) for each in chosen)


def _bits_of_words(text: str, named: frozenset[str]) -> float:
    """Return what a text is worth less because words of it stand in the issue."""
    known = [word for word in _words(text) if word in named]
    return sum(_BITS_PER_CHARACTER * len(word) - _BITS_IN_ISSUE for word in known)


def _stands(text: str, where: str) -> bool:
    """Return whether a text stands somewhere, as it is or as programs write it."""
    return any(form in where for form in {text, repr(text)[1:-1], json.dumps(text)[1:-1]})


def _words(text: str) -> Iterator[str]:
    return (word for found in _WORD.findall(text.casefold()) if (word := found.strip(".!?")))


def _text(value: Value) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bits(text: str) -> float:
    if re.fullmatch(r"-?\d+(?:\.\d+)?", text):
        # The sign is a bit, and small and round numbers are what most tests expect.
        return 1 + _BITS_PER_DIGIT * max(0, len(text.strip("-0.").replace(".", "")) - 1)
    return max(1.0, _BITS_PER_CHARACTER * len(text))
