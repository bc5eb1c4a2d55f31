"""Results of walks, and deltas as untrusted bytes."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, SandboxDelta
from swe_rollout.sandbox.session import walk
from swe_rollout.sandbox.session.frames import CHUNK_BYTES, RequestKind

_MAGIC = b"swe-delta\x01"


def _result(
    records: bytes = b"E", *, lost: int = 0, unsaved: tuple[bytes, ...] = (), more: bytes = b""
) -> ExecResult:
    report = struct.pack("<QQQQQ", 3, 2, 10, lost or len(unsaved), len(unsaved))
    said = report + b"".join(each + b"\0" for each in unsaved) + more
    return ExecResult(0, records, said, stdout_bytes=len(records), stderr_bytes=len(said))


def test_a_delta_has_what_the_walk_reports() -> None:
    result = _result(
        b"R...E", unsaved=(b"/a\xff\x1b[2J: it is a socket", b"/b: x"), more=b"sleep 9\0sh\0"
    )
    delta = walk.delta_of(result, 4)
    assert (delta.number, delta.files, delta.removed) == (4, 3, 2)
    assert delta.unsaved == ("/a\\xff\\x1b[2J: it is a socket", "/b: x")
    assert delta.processes == ("sleep 9", "sh")
    assert delta.data.startswith(_MAGIC)
    assert walk.records_of(delta) == b"R...E"


def test_no_records_are_no_data() -> None:
    delta = walk.delta_of(_result(b""), 1)
    assert not delta
    assert walk.records_of(delta) == b"E"


def test_more_unsaved_paths_than_are_named_are_counted() -> None:
    delta = walk.delta_of(_result(lost=300, unsaved=(b"/a: x",)), 1)
    assert delta.unsaved == ("/a: x", "/: 299 more paths are not saved")


def test_a_name_of_the_policys_is_not_taken_for_all_there_is() -> None:
    delta = walk.delta_of(_result(unsaved=(b"/: x: it is a socket",)), 1)
    assert delta.unsaved == ("/./: x: it is a socket",)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (ExecResult(27, b"", b"it has too many files"), "it has too many files"),
        (ExecResult(137, b"", b""), "ended with 137"),
        (ExecResult(143, b"", b"", timed_out=True), "too long"),
        (ExecResult(0, b"", b"short"), "short"),
        (replace(_result(), stdout_bytes=1 << 30), "larger than"),
    ],
)
def test_a_walk_that_failed_is_a_refusal_that_keeps_the_number(
    result: ExecResult, why: str
) -> None:
    delta = walk.delta_of(result, 5)
    assert (delta.number, delta.data) == (4, b"")
    assert delta.unsaved[0].startswith("/: ")
    assert why in delta.unsaved[0]


@given(data=st.binary(max_size=200), prefix=st.sampled_from((b"", _MAGIC, b"swe-delta\x02")))
def test_bytes_that_are_no_delta_are_an_error(data: bytes, prefix: bytes) -> None:
    if prefix + data:
        with pytest.raises(SandboxError):
            walk.records_of(SandboxDelta(1, prefix + data))


@given(cut=st.integers(0, 10_000), byte=st.integers(1, 255))
def test_a_changed_delta_is_an_error(cut: int, byte: int) -> None:
    data = bytearray(walk.delta_of(_result(bytes(range(256)) * 20), 1).data)
    data[cut % len(data)] ^= byte
    try:
        records = walk.records_of(SandboxDelta(1, bytes(data)))
    except SandboxError:
        return
    # Some bits of a frame's header mean nothing.
    assert records == bytes(range(256)) * 20


def test_a_delta_that_says_it_is_huge_is_refused_before_it_is_read() -> None:
    huge = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(b"x")
    for frame in (huge, unknown):
        with pytest.raises(SandboxError) as caught:
            walk.records_of(SandboxDelta(1, _MAGIC + frame))
        assert "it says" in caught.value.why


def test_a_restoration_sends_its_records_in_parts() -> None:
    request = walk.walk_request(RequestKind.RESTORE, {"/a": "/x/0"}, 0, bytes(CHUNK_BYTES + 1))
    frames = list(request.frames(7))
    assert [frame.kind for frame in frames] == [RequestKind.PUT, RequestKind.PUT, 16]
    assert frames[-1].body.endswith(struct.pack("<I", 2) + b"/a\0/x/0\0")


def test_a_failed_restoration_names_the_path() -> None:
    with pytest.raises(SandboxError) as caught:
        walk.check_restored(ExecResult(28, b"", b"/opt/x: No space left on device"))
    assert caught.value.why == "/opt/x: No space left on device"
