"""Make inputs from samples by their structure (JSON trees, lines, bytes) and from a grammar.

The same seed, samples and number always give the same input.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rollout_dev.fuzz.surface import Shape, Surface

MOST_BYTES: Final = 1 << 18
"""Maximum size of an input."""
_USUAL_BYTES: Final = 1 << 14
"""Longer samples are usually cut to a window of this size, because long inputs are slow."""
_MOST_STEPS: Final = 6
_WHOLE: Final = 0.03
_LONG: Final = 0.1
_OTHER_HEAD: Final = 0.05
_BYTES_TOO: Final = 0.15
_WRITTEN: Final = 0.7
"""Share of written inputs, for a surface that writes inputs of its own."""
_AS_WRITTEN: Final = 0.7
_DEEPER: Final = 0.85
"""Probability that a change is made inside a value, not to the whole value."""
_SAME_TYPE: Final = 0.6
_COIN: Final = 0.5

_TEXTS: Final = (
    *("", " ", "\n", "\0", "\t", "\r\n", "a", "0", "-1", "é", "日本", "\u202e", "\u2028", "\ufeff"),
    *("\ud800", "\udfff", "\udc80", "²", "\u0660", "9" * 5000, "1e999", "NaN", "Infinity", "-0"),
    *("true", "null", "../../../etc/passwd", "/", "//", ".", "..", "~root", "C:\\x", "%00", "%2e"),
    *("<script>alert(1)</script>", "]]>", "<!--", '"', "'", "\\", "`id`", "$(id)", "${HOME}"),
    *("{{7*7}}", "{%", "a" * 300, "A" * 70_000, "http://[::1", "http://user:pass@host/x"),
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "\x1b[31m", "\x1b]0;t\x07", "\x85", "\x1c"),
)
_NUMBERS: Final = (
    *(0, 1, -1, 2, 7, 255, 256, 65_536, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63),
    *(2**64, -(2**63), -(2**64), 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324, float("inf")),
    *(float("-inf"), float("nan")),
)
_BYTES: Final = (
    *(b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\r\n", b"\xc3\x28"),
    *(
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\0" * 512,
        b"\x1f\x8b",
        b"PK\x03\x04",
        b"\x28\xb5\x2f\xfd",
    ),
)
_ODD: Final = ("[" * 3000, '{"a":' * 3000, "9" * 10_000, '"a": 1, "a": 2, ', "1e99999", "\\u")
"""JSON that no serialiser writes: endless nesting, a huge number, a duplicate key."""
_EMPTY: Final[tuple[object, ...]] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [{}],
    {"": {}},
    [None],
    ["", ""],
)


@dataclass(frozen=True, slots=True)
class Mutator:
    """Makes the inputs of a surface."""

    surface: Surface
    samples: Sequence[bytes]

    def input(self, seed: int, number: int) -> bytes:
        """Return the input with this number; the first ones are the unchanged samples."""
        if number < len(self.samples):
            return self.samples[number]
        chance = random.Random(f"{seed} {self.surface.name} {number}")  # noqa: S311 - repeatable
        sample = chance.choice(self.samples)
        if self.surface.write is not None and chance.random() < _WRITTEN:
            sample = self.surface.write(chance)
            if chance.random() < _AS_WRITTEN:
                return sample
        head, body = b"", sample
        if self.surface.has_head:
            head, _, body = sample.partition(b"\n")
            if chance.random() < _OTHER_HEAD:
                head = chance.choice(self.samples).partition(b"\n")[0]
            head += b"\n"
        return head + _Step(chance, self).of(body)[:MOST_BYTES]

    def other(self, chance: random.Random) -> bytes:
        """Return the content of another sample."""
        sample = chance.choice(self.samples)
        return sample.partition(b"\n")[2] if self.surface.has_head else sample


class _Step:
    """The mutations of one input."""

    def __init__(self, chance: random.Random, mutator: Mutator) -> None:
        self._chance = chance
        self._mutator = mutator
        self._words = mutator.surface.words or _TEXTS
        self._many = chance.choice((2, 50, 500))

    def of(self, data: bytes) -> bytes:
        """Return the data after some changes to its structure and, now and then, its bytes."""
        shape = self._mutator.surface.shape
        if shape is Shape.JSON:
            data = self._json(data)
        elif shape is Shape.TEXT:
            data = self._lines(self._window(data))
        if shape is Shape.BYTES or self._chance.random() < _BYTES_TOO:
            made = bytearray(data[:MOST_BYTES])
            for _ in range(self._steps()):
                self._change_bytes(made)
            return bytes(made)
        return data

    def _steps(self) -> int:
        return self._chance.randint(1, _MOST_STEPS)

    def _window(self, data: bytes) -> bytes:
        if len(data) <= _USUAL_BYTES or self._chance.random() < _WHOLE:
            return data
        start = self._chance.randrange(len(data) - _USUAL_BYTES)
        return data[start : start + _USUAL_BYTES]

    def _json(self, data: bytes) -> bytes:
        chance = self._chance
        try:
            value: object = json.loads(data)
        except (ValueError, RecursionError):
            return self._lines(self._window(data))
        for _ in range(self._steps()):
            value = self._changed(value)
        text = json.dumps(value, ensure_ascii=chance.random() < _COIN)
        if chance.random() < _WHOLE:
            at = max(text.find('"'), 0)
            text = text[:at] + chance.choice(_ODD) + text[at:]
        return text.encode(errors="surrogatepass")

    def _changed(self, value: object) -> object:
        """Change one node, found by walking down at random."""
        chance = self._chance
        if not isinstance(value, dict | list) or not value or chance.random() > _DEEPER:
            return self._replaced(value)
        made: Any = value.copy()  # an object or a list
        keys = list(made) if isinstance(made, dict) else range(len(made))
        key = chance.choice(keys)
        match chance.randrange(12):
            case 0:
                del made[key]
            case 1 if isinstance(made, dict):
                made[self._text(key)] = made.pop(key)
            case 1:
                # Only once: repetitions of repetitions would grow without end.
                many, self._many = self._many, 1
                made[key:key] = [made[key]] * chance.choice((1, 1, many))
            case 2 if isinstance(made, dict):
                made[self._text(key)] = self._fresh()
            case 2:
                made.insert(key, self._fresh())
            case 3:
                other = chance.choice(keys)
                made[key], made[other] = made[other], made[key]
            case _:
                made[key] = self._changed(made[key])
        return made

    def _replaced(self, value: object) -> object:
        chance = self._chance
        match value:
            case str() if chance.random() < _SAME_TYPE:
                return self._text(value)
            case int() | float() if chance.random() < _SAME_TYPE:
                return chance.choice(_NUMBERS)
        makers: tuple[Callable[[], object], ...] = (
            *(lambda: chance.choice(_EMPTY), lambda: chance.choice(_NUMBERS)) * 2,
            *(self._nested, self._from_another),
            *(lambda: self._text(""),) * 3,
        )
        return chance.choice(makers)()

    def _fresh(self) -> object:
        return self._replaced(None)

    def _nested(self) -> object:
        made: object = self._text("")
        for _ in range(self._chance.choice((3, 70, 900))):
            made = [made] if self._chance.random() < _COIN else {"a": made}
        return made

    def _from_another(self) -> object:
        try:
            value: object = json.loads(self._mutator.other(self._chance))
        except (ValueError, RecursionError):
            return self._text("")
        for _ in range(self._chance.randrange(4)):
            if not isinstance(value, dict | list) or not value:
                break
            value = self._chance.choice([*(value.values() if isinstance(value, dict) else value)])
        return value

    def _text(self, text: str) -> str:
        """Change a text."""
        chance = self._chance
        at = chance.randrange(len(text) + 1)
        pieces: list[Callable[[], str]] = [
            lambda: chance.choice(_TEXTS),
            lambda: chance.choice(self._words),
            lambda: text + chance.choice(_TEXTS),
            lambda: text[:at] + chance.choice(self._words) + text[at:],
            lambda: text[:at] + chance.choice(_TEXTS) + text[at:],
            lambda: text[:at],
            lambda: text[at:],
            lambda: text[:_USUAL_BYTES] * chance.choice((2, 3, 30)),
            text.swapcase,
        ]
        return chance.choice(pieces)()[:_USUAL_BYTES]

    def _lines(self, data: bytes) -> bytes:
        lines = data.decode(errors="surrogateescape").split("\n")
        for _ in range(self._steps()):
            lines = self._lines_changed(lines) or [""]
            if sum(map(len, lines)) > MOST_BYTES:
                break  # repetitions of repetitions would grow without end
        return "\n".join(lines)[:MOST_BYTES].encode(errors="surrogatepass")

    def _lines_changed(self, lines: list[str]) -> list[str]:
        chance = self._chance
        at = chance.randrange(len(lines))
        to = min(len(lines), at + chance.choice((1, 1, 2, 5, 20)))
        line_at = chance.randrange(len(lines[at]) + 1)
        before, after = lines[at][:line_at], lines[at][line_at:]
        match chance.randrange(10):
            case 0:
                return lines[:at] + lines[to:]
            case 1:
                return lines[:at] + lines[at:to] * chance.choice((2, 3, 100)) + lines[to:]
            case 2:
                other = self._mutator.other(chance)[:_USUAL_BYTES].decode(errors="replace")
                return lines[:at] + other.split("\n")[: chance.choice((1, 5, 50))] + lines[at:]
            case 3:
                other_at = chance.randrange(len(lines))
                lines[at], lines[other_at] = lines[other_at], lines[at]
            case 4 if chance.random() < _LONG:
                # Text that a confused policy repeats.
                lines[at] = before + (chance.choice(self._words)[:100] * 8000)[:MOST_BYTES] + after
            case 5 | 6 if self._mutator.surface.words:
                lines[at] = before + chance.choice(self._words) + after
            case 7:
                lines[at] = before + after[chance.choice((1, 3, 20)) :]
            case _:
                lines[at] = self._text(lines[at])
        return lines

    def _change_bytes(self, data: bytearray) -> None:
        chance = self._chance
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice((1, 2, 4, 8, 64, 512)))
        match chance.randrange(9):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(data):
                data[at] = chance.randrange(256)
            case 2:
                del data[at:to]
            case 3:
                data[at:at] = data[at:to] * chance.choice((1, 2, 100))
            case 4 | 5 as kind:
                data[at : to if kind == 5 else at] = chance.choice(_BYTES)  # noqa: PLR2004
            case 6:
                other = self._mutator.other(chance)
                start = chance.randrange(len(other) + 1)
                data[at:to] = other[start : start + chance.choice((4, 64, 512))]
            case 7 if self._mutator.surface.words:
                data[at:at] = chance.choice(self._words).encode(errors="replace")
            case _ if chance.random() < _LONG:
                del data[at:]
            case _:
                data[at:to] = chance.randbytes(to - at)
