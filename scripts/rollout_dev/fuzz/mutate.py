"""Make inputs from samples: by their structure (trees of JSON, lines, bytes) and by a grammar.

The input of a number is the same in every run with one seed and one set of samples.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rollout_dev.fuzz.surface import Shape, Surface

MOST_BYTES: Final = 1 << 18
"""Of an input."""
_USUAL_BYTES: Final = 1 << 14
"""Longer samples are cut to a window of this size most of the time, since long inputs are slow."""
_MOST_STEPS: Final = 6
_WHOLE: Final = 0.03
_LONG: Final = 0.1
_OTHER_HEAD: Final = 0.05
_BYTES_TOO: Final = 0.15
_WRITTEN: Final = 0.7
"""Of the inputs of a surface that writes some of its own."""
_AS_WRITTEN: Final = 0.7
_DEEP: Final = 3000

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


@dataclass(frozen=True, slots=True)
class Mutator:
    """Makes the inputs of a surface."""

    surface: Surface
    samples: Sequence[bytes]

    def input(self, seed: int, number: int) -> bytes:
        """Return the input of a number; the first ones are the samples as they are."""
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
        """Return what another sample holds."""
        sample = chance.choice(self.samples)
        return sample.partition(b"\n")[2] if self.surface.has_head else sample


class _Step:
    """The mutations of one input."""

    def __init__(self, chance: random.Random, mutator: Mutator) -> None:
        self._chance = chance
        self._mutator = mutator
        self._words = mutator.surface.words
        self._many = chance.choice((2, 50, 500))

    def of(self, data: bytes) -> bytes:
        chance = self._chance
        match self._mutator.surface.shape:
            case Shape.JSON:
                data = self._json(data)
                return self._bytes(data) if chance.random() < _BYTES_TOO else data
            case Shape.TEXT:
                data = self._lines(self._window(data))
                return self._bytes(data) if chance.random() < _BYTES_TOO else data
            case Shape.BYTES:
                return self._bytes(data)

    def _steps(self) -> int:
        return self._chance.randint(1, _MOST_STEPS)

    def _window(self, data: bytes) -> bytes:
        if len(data) <= _USUAL_BYTES or self._chance.random() < _WHOLE:
            return data
        start = self._chance.randrange(len(data) - _USUAL_BYTES)
        return data[start : start + _USUAL_BYTES]

    # JSON

    def _json(self, data: bytes) -> bytes:
        try:
            value: object = json.loads(data)
        except (ValueError, RecursionError):
            return self._lines(self._window(data))
        for _ in range(self._steps()):
            value = self._changed(value)
        return self._dumped(value)

    def _dumped(self, value: object) -> bytes:
        chance = self._chance
        text = json.dumps(value, ensure_ascii=chance.random() < 0.5)  # noqa: PLR2004 - a coin
        if chance.random() < _WHOLE:
            # What no serialiser writes: a key twice, a number of many digits, nesting without end.
            at = text.find('"')
            odd = chance.choice(
                ("[" * _DEEP, '{"a":' * _DEEP, "9" * 10_000, '"a": 1, "a": 2, ', "1e99999", "\\u")
            )
            text = text[: max(at, 0)] + odd + text[max(at, 0) :]
        return text.encode(errors="surrogatepass")

    def _changed(self, value: object) -> object:
        """Change one node, found by walking down at random."""
        chance = self._chance
        match value:
            case dict() if value and chance.random() < 0.85:  # noqa: PLR2004 - how deep it goes
                key = chance.choice(list(value))
                return self._in_object(dict(value), key)
            case list() if value and chance.random() < 0.85:  # noqa: PLR2004
                return self._in_list(list(value), chance.randrange(len(value)))
            case _:
                return self._replaced(value)

    def _in_object(self, value: dict[str, object], key: str) -> dict[str, object]:
        chance = self._chance
        match chance.randrange(12):
            case 0:
                del value[key]
            case 1:
                value[self._text(key)] = value.pop(key)
            case 2:
                value[self._text(key)] = self._fresh()
            case 3:
                other = chance.choice(list(value))
                value[key], value[other] = value[other], value[key]
            case _:
                value[key] = self._changed(value[key])
        return value

    def _in_list(self, value: list[object], at: int) -> list[object]:
        chance = self._chance
        match chance.randrange(12):
            case 0:
                del value[at]
            case 1:
                # Once: repetitions of repetitions have no end.
                many, self._many = self._many, 1
                value[at:at] = [value[at]] * chance.choice((1, 1, many))
            case 2:
                value.insert(at, self._fresh())
            case 3:
                chance.shuffle(value)
            case _:
                value[at] = self._changed(value[at])
        return value

    def _replaced(self, value: object) -> object:
        chance = self._chance
        match value:
            case str() if chance.random() < 0.6:  # noqa: PLR2004 - mostly of the same type
                return self._text(value)
            case int() | float() if chance.random() < 0.6:  # noqa: PLR2004
                return chance.choice(_NUMBERS)
            case _:
                return self._fresh()

    def _fresh(self) -> object:  # noqa: PLR0911 - one for each kind
        chance = self._chance
        match chance.randrange(10):
            case 0:
                return None
            case 1:
                return chance.random() < 0.5  # noqa: PLR2004 - a coin
            case 2 | 3:
                return chance.choice(_NUMBERS)
            case 4:
                return chance.choice(([], {}, [[]], [{}], {"": {}}, [None], ["", ""]))
            case 5:
                return self._nested()
            case 6:
                return self._from_another()
            case _:
                return self._text("")

    def _nested(self) -> object:
        chance, value = self._chance, self._text("")
        made: object = value
        for _ in range(chance.choice((3, 70, 900))):
            made = [made] if chance.random() < 0.5 else {"a": made}  # noqa: PLR2004 - a coin
        return made

    def _from_another(self) -> object:
        try:
            value: object = json.loads(self._mutator.other(self._chance))
        except (ValueError, RecursionError):
            return self._text("")
        for _ in range(self._chance.randrange(4)):
            match value:
                case dict() if value:
                    value = value[self._chance.choice(list(value))]
                case list() if value:
                    value = self._chance.choice(value)
                case _:
                    break
        return value

    def _text(self, text: str) -> str:
        """Change a text."""
        chance = self._chance
        pieces: list[Callable[[], str]] = [
            lambda: chance.choice(_TEXTS),
            lambda: chance.choice(self._words or _TEXTS),
            lambda: text + chance.choice(_TEXTS),
            lambda: self._inserted(text, chance.choice(self._words or _TEXTS)),
            lambda: self._inserted(text, chance.choice(_TEXTS)),
            lambda: text[: chance.randrange(len(text) + 1)],
            lambda: text[chance.randrange(len(text) + 1) :],
            lambda: text[:_USUAL_BYTES] * chance.choice((2, 3, 30)),
            text.swapcase,
        ]
        return chance.choice(pieces)()[:_USUAL_BYTES]

    def _inserted(self, text: str, piece: str) -> str:
        at = self._chance.randrange(len(text) + 1)
        return text[:at] + piece + text[at:]

    # Lines

    def _lines(self, data: bytes) -> bytes:
        lines = data.decode(errors="surrogateescape").split("\n")
        for _ in range(self._steps()):
            lines = self._lines_changed(lines) or [""]
            if sum(map(len, lines)) > MOST_BYTES:
                break  # repetitions of repetitions have no end
        return "\n".join(lines)[:MOST_BYTES].encode(errors="surrogatepass")

    def _lines_changed(self, lines: list[str]) -> list[str]:  # noqa: PLR0911 - one for each kind
        chance = self._chance
        at = chance.randrange(len(lines))
        to = min(len(lines), at + chance.choice((1, 1, 2, 5, 20)))
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
                return lines
            case 4 if chance.random() < _LONG:
                lines[at] = self._inserted(lines[at], self._repeated())
                return lines
            case 5 | 6 if self._words:
                lines[at] = self._inserted(lines[at], chance.choice(self._words))
                return lines
            case 7:
                lines[at] = self._cut(lines[at])
                return lines
            case _:
                lines[at] = self._text(lines[at])
                return lines

    def _repeated(self) -> str:
        """Return what a policy repeats that has lost its way."""
        piece = self._chance.choice(self._words or _TEXTS)[:100]
        return (piece * 8000)[:MOST_BYTES]

    def _cut(self, line: str) -> str:
        if not line:
            return line
        start = self._chance.randrange(len(line))
        end = min(len(line), start + self._chance.choice((1, 3, 20)))
        return line[:start] + line[end:]

    # Bytes

    def _bytes(self, data: bytes) -> bytes:
        made = bytearray(data[:MOST_BYTES])
        for _ in range(self._steps()):
            self._byte_step(made)
        return bytes(made)

    def _byte_step(self, data: bytearray) -> None:
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
            case 4:
                data[at:at] = chance.choice(_BYTES)
            case 5:
                data[at:to] = chance.choice(_BYTES)
            case 6:
                other = self._mutator.other(chance)
                start = chance.randrange(len(other) + 1)
                data[at:to] = other[start : start + chance.choice((4, 64, 512))]
            case 7 if self._words:
                data[at:at] = chance.choice(self._words).encode(errors="replace")
            case _:
                if chance.random() < _LONG:
                    del data[at:]
                else:
                    data[at:to] = chance.randbytes(to - at)
