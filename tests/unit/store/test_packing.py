"""Packed objects come back whole, or not at all."""

from __future__ import annotations

import hashlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from swe_rollout.store.kept import pack, unpack, unpack_recorded

from swe_rollout.store import packing

DATA = b"one log line\n" * 100
SHA = hashlib.sha256(DATA).hexdigest()
PACKED = pack(DATA, level=3)


@given(st.binary(max_size=2000), st.integers(1, 19))
def test_what_was_packed_comes_back(data: bytes, level: int) -> None:
    packed = pack(data, level=level)
    assert unpack(packed) == data
    sha256 = hashlib.sha256(data).hexdigest()
    assert unpack_recorded(packed, size=len(data), sha256=sha256) == data


@given(st.integers(0, len(PACKED) - 1))
def test_a_frame_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"zstd frame|bytes, not"):
        unpack(PACKED[:length])
    with pytest.raises(ValueError, match=r"zstd frame|bytes, not"):
        unpack_recorded(PACKED[:length], size=len(DATA), sha256=SHA)


def test_a_frame_of_unknown_size_is_refused() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(DATA)
    with pytest.raises(ValueError, match="could not determine content size"):
        unpack(packed)
    with pytest.raises(ValueError, match="it has -1 bytes, not -1"):
        unpack_recorded(packed, size=-1, sha256=SHA)


def test_a_frame_that_is_too_large_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_BYTES", len(DATA) - 1)
    with pytest.raises(ValueError, match="it unpacks to more than"):
        unpack(PACKED)
    with pytest.raises(ValueError, match="it has 1300 bytes"):
        unpack_recorded(PACKED, size=len(DATA), sha256=SHA, most=len(DATA) - 1)


@pytest.mark.parametrize(
    ("size", "sha256", "why"),
    [(len(DATA) + 1, SHA, "it has 1300 bytes, not 1301"), (len(DATA), "0" * 64, "its content is")],
)
def test_what_is_not_as_recorded_is_refused(size: int, sha256: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack_recorded(PACKED, size=size, sha256=sha256)
