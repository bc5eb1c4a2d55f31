"""Which token holds a character: the same as decoding every prefix would say, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from swe_rollout.agent.token_offsets import TokenBytes, TokenOffsets, TokenRun
from swe_rollout.testing.tiny import tokenizer_path

BYTE_LEVEL = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))


def byte_fallback() -> Tokenizer:
    pieces = ["<unk>", "▁", "▁a", "é", "日本", "<", *(f"<0x{byte:02X}>" for byte in range(256))]
    made = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 0, byte_fallback=True))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


FALLBACK = byte_fallback()


def bytes_of(backend: Tokenizer) -> TokenBytes:
    return TokenBytes(decoding(backend), backend.id_to_token)


def decoding(backend: Tokenizer) -> Callable[[Sequence[int]], str]:
    return lambda ids: backend.decode(list(ids), skip_special_tokens=False)


def by_prefixes(backend: Tokenizer, ids: Sequence[int], text: str) -> list[int]:
    """The characters of the text that its first ids complete, by decoding each prefix."""
    ends = []
    for count in range(1, len(ids) + 1):
        begun = decoding(backend)(ids[:count])
        while not text.startswith(begun):
            begun = begun[:-1]
        # A replacement may still become a character, as long as the text goes on.
        ends.append(len(text) if count == len(ids) else len(begun.rstrip("\ufffd")))
    return ends


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1), max_size=12))
def test_any_ids_of_a_byte_level_vocabulary_have_their_places(ids: list[int]) -> None:
    text = decoding(BYTE_LEVEL)(ids)
    ends = bytes_of(BYTE_LEVEL).ends(ids, text)

    assert ends is not None
    assert ends == sorted(ends)
    assert (ends[-1] if ends else 0) == len(text)
    for index, slow in enumerate(by_prefixes(BYTE_LEVEL, ids, text)):
        assert ends[index] >= slow


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=12))
def test_a_text_in_bytes_has_the_places_that_its_prefixes_have(text: str) -> None:
    ids = BYTE_LEVEL.encode(text, add_special_tokens=False).ids
    whole = decoding(BYTE_LEVEL)(ids)
    assert bytes_of(BYTE_LEVEL).ends(ids, whole) == by_prefixes(BYTE_LEVEL, ids, whole)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_a_character_is_complete_with_its_last_byte(text: str) -> None:
    data = text.encode()
    ids = [FALLBACK.get_vocab()[f"<0x{byte:02X}>"] for byte in data]
    ends = [len(data[: index + 1].decode(errors="ignore")) for index in range(len(data))]
    assert bytes_of(FALLBACK).ends(ids, text) == ends


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, FALLBACK.get_vocab_size() - 1), max_size=12))
def test_any_ids_of_a_vocabulary_with_a_fallback_to_bytes_have_their_places(
    ids: list[int],
) -> None:
    text = decoding(FALLBACK)(ids)
    ends = bytes_of(FALLBACK).ends(ids, text)

    assert ends is not None
    assert ends == sorted(ends)
    assert (ends[-1] if ends else 0) == len(text)


@pytest.mark.threat(point=10)
def test_places_are_counted_once_for_a_run() -> None:
    counted = []

    def ends(run: TokenRun) -> list[int]:
        counted.append(run)
        return [1, 2, 5]

    run = TokenRun(0, 0, (7, 8, 9), "abcde")
    offsets = TokenOffsets([run], ends)

    assert [offsets(at) for at in range(7)] == [0, 1, 2, 2, 2, 3, 3]
    assert counted == [run]


def test_a_place_that_is_not_known_is_none() -> None:
    offsets = TokenOffsets([TokenRun(0, 0, (7,), "ab")], lambda _: None)
    merging = TokenBytes(lambda ids: "x" * (len(ids) ** 2), lambda _: None)

    assert offsets(0) is None
    assert merging.ends([1, 2], "xxxx") is None
