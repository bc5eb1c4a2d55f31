"""How likely it is that whoever does not know the expected values guesses them all. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from swe_rollout.grading.holes import Value

PROVEN: Final = 1e-3
"""Longer odds than these are no guess."""
_MOST_BITS: Final = 13.0
"""A repository holds some thousands of texts; whatever is expected may be one of them."""
_BITS_PER_CHARACTER: Final = 1.0
"""About the entropy of English text, and less than that of most others."""
_BITS_PER_DIGIT: Final = math.log2(10)
_WORD: Final = re.compile(r"[^\s'\"`()\[\]{},;:=]+")


def odds(values: Iterable[Value], visible: str) -> float:
    """Return the probability of guessing these values by somebody who can read `visible`."""
    words: int | None = None
    bits = 0.0
    for text in {_text(value) for value in values}:
        own = _bits(text)
        if text and text in visible:
            if words is None:
                words = len(set(_WORD.findall(visible)))
            own = min(own, math.log2(words + 1))
        bits += min(own, _MOST_BITS)
    return float(2.0**-bits)


def shown(value: float) -> str:
    """Return odds for people: `1 in 40`, `1 in 2^37`."""
    if value <= 0:
        return "none"
    inverse = 1 / value
    return f"1 in {inverse:.0f}" if inverse < 1e6 else f"1 in 2^{math.log2(inverse):.0f}"  # noqa: PLR2004 (what people read)


def _text(value: Value) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bits(text: str) -> float:
    if re.fullmatch(r"-?\d+(?:\.\d+)?", text):
        # The sign is a bit, and small numbers are what most tests expect.
        return 1 + _BITS_PER_DIGIT * (len(text.strip("-")) - 1)
    return max(1.0, _BITS_PER_CHARACTER * len(text))
