"""Degenerate turns, which a confused policy repeats until its tokens are used up.

Each consists of pieces of a grammar: whole calls, openers, closers, halves of them, braces, quotes,
escapes, white space and control tokens. Used by the time fuzz and its tests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final

from rollout_dev.parser_probes.calls import write_calls
from swe_rollout.agent.encoding import Encoding, Scaffold
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_TAG: Final = re.compile(
    r"</?[^<>\n]*>|\[/?[A-Z_]+\]|[A-Z]\w+(?: \w+)?:|```\w*|[^<\[]+|.", re.DOTALL
)
_ANY: Final = (
    *("{", "}", "[", "]", '"', "'", "\\", '\\"', "\\u", "\\ud800", ":", ",", ";", "`", "<", ">"),
    *("</", "=", "\n", " ", "\t", "\r\n", "\u00a0", "a", "0", "9" * 40, "-1e9", "1e999", "null"),
    *('{"a": ', "[[", '"a", ', '{"name": "', '", "arguments": {', "\0", "\ufffd", "日本", "🎉"),
    *("<think>", "</think>", "Action:", "Action Input: {", "\nAction: x", "to=functions.x"),
)
_QUOTES: Final = ("'", '"', "'''", "\\", "(", "[", "{", "\n")
_CALL: Final = ToolCall(CallStatus.OK, "", "bash", {"command": "a", "timeout": 3})
_BARE: Final = ToolCall(CallStatus.OK, "", "submit", {})
_MAX_UNIT: Final = 5
_OWN_SHARE: Final = 0.7
_SHORT: Final = 3


def pieces_of(form: ToolFormat | TextFormat) -> tuple[str, ...]:
    """Return the pieces of a grammar: whole calls, their tags, and fragments of both."""
    calls = [write_calls(form, several) for several in ([_CALL], [_BARE], [_CALL, _CALL])]
    tags = list(dict.fromkeys(tag for call in calls for tag in _TAG.findall(call)))
    halves = [
        half for tag in tags if len(tag) > _SHORT for half in (tag[: len(tag) // 2], tag[:-1])
    ]
    heads = [call[: len(call) * cut // 8] for call in calls for cut in range(2, 8)]
    tails = [call[len(call) * cut // 8 :] for call in calls for cut in (2, 4, 6)]
    return tuple(dict.fromkeys((*calls, *tags, *halves, *heads, *tails)))


def nested_units(form: ToolFormat | TextFormat) -> Iterator[tuple[str, ...]]:
    """Yield the outer tags of a call with every quote and bracket between and behind them."""
    tags = _TAG.findall(write_calls(form, [_CALL]))
    for mark in _QUOTES:
        for behind in ("", mark):
            yield from ((tags[0], mark, tags[-1], behind), (tags[0], mark, behind))


def units(form: ToolFormat | TextFormat, count: int, *, seed: int = 0) -> Iterator[tuple[str, ...]]:
    """Yield the units that `count` turns repeat: first each piece alone, then mixtures."""
    own = pieces_of(form)
    everything = (*own, *_ANY)
    yield from ((piece,) for piece in everything[:count])
    rng = random.Random(f"{form.value} {seed}")  # noqa: S311 - repeatable
    for _ in range(count - len(everything)):
        size = rng.randint(2, _MAX_UNIT)
        yield tuple(rng.choice(own if rng.random() < _OWN_SHARE else _ANY) for _ in range(size))


def turn_ids(
    encoding: Encoding, unit: Sequence[str], tokens: int, *, rng: random.Random | None = None
) -> list[int]:
    """Return a turn of exactly this many tokens, which repeats a unit.

    With `rng`, its pieces come in random order, mixed with some control tokens of the vocabulary.
    """
    encoded = [encoding.encode([Scaffold(piece)]) for piece in unit]
    if rng is not None:
        encoded += [[rng.choice(list(encoding.controls))]] if encoding.controls else []
    ids: list[int] = []
    while len(ids) < tokens:
        for each in encoded if rng is None else rng.choices(encoded, k=len(encoded)):
            ids += each
    return ids[:tokens]
