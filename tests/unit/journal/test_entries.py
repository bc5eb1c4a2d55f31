"""The stored form of a journal: exact to the bit, and anything else is damage."""

from __future__ import annotations

import math
from contextlib import suppress

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.engine.chat.base import AssistantMessage, ChatCall, ChatResponse, ChatUsage
from swe_rollout.journal.entries import (
    MAX_CHUNK_BYTES,
    Cancelled,
    Chunk,
    DamagedChunkError,
    Delta,
    Done,
    End,
    Entry,
    FileRead,
    Observed,
    Ran,
    Refused,
    Said,
    Sampled,
    compress,
    decode,
    digest_of,
    encode,
)
from swe_rollout.tokens.replay import ReplayRows
from swe_rollout.types.turn import FinishReason, Generation, Observation, WeightSpan

ids = st.integers(0, 2**31 - 1)
logprobs = st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(
    ReplayRows,
    experts=st.none()
    | st.lists(st.lists(ids, min_size=4, max_size=4), max_size=5).map(
        lambda found: np.array(found, dtype=np.int32).reshape(len(found), 2, 2)
    ),
    kept_ids=st.lists(st.lists(ids, max_size=3).map(tuple), max_size=3).map(tuple),
    kept_logprobs=st.lists(logprobs, max_size=3).map(tuple),
    prompt_logprobs=st.lists(st.none() | logprobs, max_size=3).map(tuple),
)
generations = st.lists(st.tuples(ids, logprobs), max_size=20).flatmap(
    lambda pairs: st.builds(
        Generation,
        token_ids=st.just(tuple(each for each, _ in pairs)),
        logprobs=st.just(tuple(each for _, each in pairs)),
        finish_reason=st.sampled_from(FinishReason),
        prompt_tokens=st.integers(0, 10**6),
        cached_tokens=st.integers(0, 10**6),
        weight_versions=st.just((WeightSpan("v1", 0, len(pairs)),)),
        replay=st.none() | rows,
    )
)


@settings(deadline=None)
@given(generations)
def test_a_turn_comes_back_bit_for_bit(generation: Generation) -> None:
    chunk = Chunk("w", entries=(Entry(0, "turn:x", Sampled.of(generation)),))
    (entry,) = decode(compress(encode(chunk))).entries
    assert isinstance(entry.answer, Sampled)
    found = entry.answer.value()
    assert found == generation
    assert [math.copysign(1, each) for each in found.logprobs] == [
        math.copysign(1, each) for each in generation.logprobs
    ]
    if generation.replay and generation.replay.experts is not None:
        assert found.replay is not None
        np.testing.assert_array_equal(found.replay.experts, generation.replay.experts)


def test_every_kind_of_answer_comes_back() -> None:
    said = ChatResponse(
        AssistantMessage("Hm.", (ChatCall("1", "bash", "{}"),), "so", b'{"a": 1}'),
        FinishReason.STOP,
        ChatUsage(1, 2, 3),
        "model",
    )
    answers = (
        Said(said),
        Ran(1, b"\xff\0", b"err", True, 3, 4, 0.5),  # noqa: FBT003 - timed out
        FileRead(bytes(range(256))),
        Done(),
        Observed(Observation("text \ud7ff", 0, duration_s=1.5)),
        Refused("FileNotFoundError", "/a", "No such file", code=2),
        Cancelled(),
    )
    chunk = Chunk(
        "w",
        entries=tuple(Entry(3, "exec:x", answer, 1.5, 2.5) for answer in answers),
        delta=Delta(2, b"\0\xff", ("/a: why",), ("server",)),
        end=End("diff", ""),
        resumes=True,
    )
    assert decode(compress(encode(chunk))) == chunk


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedChunkError):
        decode(data)
    with pytest.raises(DamagedChunkError):
        decode(zstandard.compress(data))


@settings(deadline=None)
@given(cut=st.integers(0, 200), flip=st.integers(0, 10**6))
def test_a_chunk_that_was_cut_or_changed_is_damage(cut: int, flip: int) -> None:
    whole = compress(encode(Chunk("w", entries=(Entry(0, "exec:x", FileRead(b"data" * 50)),))))
    with pytest.raises(DamagedChunkError):
        decode(whole[: min(cut, len(whole) - 1)])
    changed = bytearray(whole)
    changed[flip % len(whole)] ^= 1 << (flip % 8)
    with suppress(DamagedChunkError):
        assert decode(bytes(changed)) == decode(whole)  # a bit that means nothing


def test_a_chunk_that_would_fill_the_memory_is_not_unpacked() -> None:
    header = zstandard.ZstdCompressor().compressobj(size=MAX_CHUNK_BYTES + 1).compress(b"x")
    frame = header or zstandard.ZstdCompressor().compress(b"")
    with pytest.raises(DamagedChunkError):
        decode(frame)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("a", "b"), ("b", "a")),
        ((b"1",), ("1",)),
        ((["a"],), ("['a']x",)),
        (("\ud800",), ("\ud801",)),
        ((1,), (True,)),
    ],
)
def test_requests_that_differ_have_digests_that_differ(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert digest_of("exec", *one) != digest_of("exec", *other)
    assert digest_of("exec", *one) != digest_of("read", *one)
    assert digest_of("exec", *one) == digest_of("exec", *one)


def test_the_stored_form_is_messagepack_without_what_is_not_there() -> None:
    data = zstandard.decompress(compress(encode(Chunk("w", end=End("d", "")))))
    assert msgspec.msgpack.decode(data) == {"writer": "w", "end": {"patch": "d", "problem": ""}}


def test_a_text_that_utf_8_cannot_hold_is_refused() -> None:
    answer = Observed(Observation("half a pair: \ud800"))
    with pytest.raises(ValueError, match="surrogates"):
        encode(Chunk("w", entries=(Entry(0, "tool:x", answer),)))
