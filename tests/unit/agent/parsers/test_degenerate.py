"""A turn is read in time that grows with its length alone, whatever it repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from tokenizers import Tokenizer

from ratios import growth, thread_s
from rollout_dev import families
from rollout_dev.families import FAMILIES
from rollout_dev.parser_probes.calls import write_calls
from rollout_dev.parser_probes.degenerate import nested_units, pieces_of, turn_ids, units
from rollout_dev.parser_probes.probe_files import load_probes
from swe_rollout.agent.encoding import Encoding
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import CallStatus, ToolCall

Format: TypeAlias = ToolFormat | TextFormat
TOOLS = load_probes()[0].tools
SHORT, LONG = 1024, 4096
SLACK = 2.5
"""Four times the tokens may cost ten times as much; quadratic work costs sixteen times."""
FLOOR_S = 0.05
"""Less than this is not looked at: other work on the machine shows in it."""
UNITS = 24
CALL = ToolCall(CallStatus.OK, "", "edit", {"text": "a"})


def encoding_for(form: Format, folder: Path) -> Encoding:
    name = next((name for name, each in FAMILIES.items() if each.tool_format is form), None)
    path = families.write(name, folder) if name else tokenizer_path()
    return Encoding(Tokenizer.from_file(str(path / "tokenizer.json")))


def is_linear(work: Callable[[int], object]) -> bool:
    """Whether the long turn costs little, or no more than linear work does; the first run tells."""
    if thread_s(partial(work, LONG), rounds=1) < FLOOR_S:
        return True
    return growth(work, SHORT, LONG, floor_s=FLOOR_S) <= SLACK


@pytest.mark.threat(point=10)
@pytest.mark.parametrize("form", [*ToolFormat, *TextFormat])
def test_a_degenerate_turn_is_read_in_linear_time(form: Format, tmp_path: Path) -> None:
    encoding, parser = encoding_for(form, tmp_path), parser_for(form)

    def read(unit: tuple[str, ...], tokens: int) -> None:
        sampled = encoding.sampled(turn_ids(encoding, unit, tokens))
        parser.parse(sampled, tools=TOOLS, reasoning=Reasoning())

    every = list(units(form, len(pieces_of(form)) + 4 * UNITS))
    whole = write_calls(form, [CALL])
    opener, _, closer = whole.partition(CALL.name)
    tried: list[tuple[str, ...]] = [(text,) for text in (whole, opener, closer) if text]
    tried += every[:: max(1, len(every) // UNITS)]
    slow = [unit for unit in tried if not is_linear(partial(read, unit))]

    assert slow == []


@pytest.mark.threat(point=10)
@pytest.mark.parametrize("form", [*ToolFormat, *TextFormat])
def test_white_space_between_the_pieces_of_a_call_is_read_in_linear_time(
    form: Format,
) -> None:
    parser = parser_for(form)

    def read(head: str, space: str, tokens: int) -> None:
        turn = SampledText(head + space * (2 * tokens) + head, ())
        parser.parse(turn, tools=TOOLS, reasoning=Reasoning())

    slow = [
        (piece, space)
        for piece in pieces_of(form)
        for space in (" ", "\n", "\u00a0", "w", '"', "\\", "[", "<", "9")
        if not is_linear(partial(read, piece, space))
    ]

    assert slow == []


@pytest.mark.threat(point=10)
@pytest.mark.parametrize("form", [*ToolFormat, *TextFormat])
def test_quotes_and_brackets_around_the_tags_of_a_call_are_read_in_linear_time(
    form: Format,
) -> None:
    parser = parser_for(form)

    def read(unit: tuple[str, ...], times: int) -> None:
        turn = SampledText("".join(unit) * (times // 4), ())
        parser.parse(turn, tools=TOOLS, reasoning=Reasoning())

    assert [unit for unit in nested_units(form) if not is_linear(partial(read, unit))] == []


@pytest.mark.threat(point=10)
def test_spans_decode_each_token_of_a_vocabulary_once(tmp_path: Path) -> None:
    encoding = encoding_for(ToolFormat.MINIMAX_M2, tmp_path)
    decoded = list[int]()

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return encoding.decode(ids)

    encoding._bytes._decode = decode
    ids = turn_ids(encoding, ["<minimax:tool_call>\n<invoke"], 8192)

    sampled = encoding.sampled(ids)
    calls = parser_for(ToolFormat.MINIMAX_M2).parse(sampled, tools=TOOLS, reasoning=Reasoning())

    assert len(calls) > 100
    assert all(call.span is not None for call in calls)
    assert sum(decoded) <= len(set(ids))


@pytest.mark.threat(point=10)
def test_an_error_in_json_costs_no_more_than_the_json() -> None:
    """Python counts the lines before an error, and a turn may hold thousands of them."""

    class Counting(str):
        counted = 0
        __slots__ = ()

        def __getitem__(self, key: object) -> str:
            found = str.__getitem__(self, key)  # type: ignore[index]
            Counting.counted += len(found)
            return found

    text = Counting('<tool_call>{"a' * 10_000)
    for at in range(11, len(text), 14):
        with pytest.raises(ValueError, match="invalid"):
            read_json(text, at)

    assert Counting.counted < 20_000 * len(text) / 10


@pytest.mark.threat(point=11)
@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "-" + "9" * 1_000_000, '"\\ud800"'),
        *('{"a": 1, "a": 1}', "NaN", "-Infinity", "1" + "0" * 5_000 + ".0", "[1e999, 1e-999999]"),
        *('"\\u"', '"\\', "\ud800", '"\ud800"', "{", "]", '{"\\ud83d": 1}', "\0", "\ufeff{}", ""),
    ],
)
def test_no_json_raises_anything_but_a_sentence(text: str) -> None:
    try:
        found = read_json(text)
    except ValueError as error:
        assert len(str(error)) < 200  # noqa: PT017 - the sentence is what counts
        assert "sys." not in str(error)  # noqa: PT017
    else:
        json.dumps(found.value, allow_nan=False).encode()


@pytest.mark.parametrize("make", [
    lambda n: json.dumps("x" * n),
    lambda n: json.dumps(["é\n\\" * (n // 3), None, True]),
    lambda n: "[" + "1, " * (n // 3) + "12345678901234567890]",
    lambda n: " " * n + "true",
    lambda n: '{"a": ' + " " * n + "false }",
    lambda n: json.dumps("\U0001f389" * (n // 12)),
])  # fmt: skip
def test_json_is_read_the_same_however_long_it_is(make: Callable[[int], str]) -> None:
    for size in (*range(1000, 1050), 4096, 5000, 30_000):
        text = make(size)
        found = read_json(f"{text} tail")

        assert found.value == json.loads(text)
        assert found.end == len(text) + 1
        with pytest.raises(ValueError, match="its JSON is invalid"):
            read_json(text[:-1])
