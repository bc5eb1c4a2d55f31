"""Requests for a sandbox's files as deltas, and their results.

The supervisor walks and restores; nothing here reads a delta's records, and nothing is written to
this machine by their names. `docs/reference/supervisor.md` documents them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import zstandard

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, SandboxDelta
from swe_rollout.sandbox.session.frames import Greeting, RequestKind, put, word
from swe_rollout.sandbox.session.seal import Frame

MAX_FILE_BYTES: Final = 16 << 20
"""Content of one file; a larger one is reported as unsaved."""
MAX_DELTA_BYTES: Final = 32 << 20
"""Of one delta, before compression; files beyond it are reported as unsaved."""
WHOLE: Final = "/"
"""The path in `SandboxDelta.unsaved` that stands for all there is."""

_MAX_STREAM_BYTES: Final = 2 * MAX_DELTA_BYTES + (1 << 20)
"""With names, as the supervisor bounds them too."""
_MAGIC: Final = b"swe-delta\x01"
"""A delta's `data` begins so; the last byte is the version. A zstd frame of the records follows."""
_LEVEL: Final = 3
_WALK: Final = struct.Struct("<QQQI")
_REPORT: Final = struct.Struct("<QQQQQ")
_END: Final = b"E"


@dataclass(frozen=True, slots=True)
class Walk:
    """A request about the files of the sandbox."""

    kind: RequestKind
    trees: Mapping[str, str] | None
    """Folders by the names that deltas have for them; None: every mount that can be written to."""
    number: int = 0
    """Of the moment that is recorded."""
    records: bytes = b""
    """What is restored."""

    @property
    def max_stream_bytes(self) -> int:
        return _MAX_STREAM_BYTES

    def frames(self, number: int, _: Greeting) -> Iterable[Frame]:
        pairs = [word(text) for pair in (self.trees or {}).items() for text in pair]
        head = _WALK.pack(self.number, MAX_FILE_BYTES, MAX_DELTA_BYTES, len(pairs))
        return self._frames(number, head + b"".join(pairs))

    def _frames(self, number: int, body: bytes) -> Iterator[Frame]:
        yield from put(number, RequestKind.PUT, self.records)
        yield Frame(number, self.kind, body)


def delta_of(result: ExecResult, number: int) -> SandboxDelta:
    """Return the delta that a `CHANGES` request resulted in, or a refusal.

    Blocks while it compresses.
    """
    if not result.ok or len(result.stderr) < _REPORT.size:
        return refused(number, _why(result))
    if result.truncated:
        return refused(number, f"its delta is larger than {_MAX_STREAM_BYTES} bytes")
    files, removed, _, lost, named = _REPORT.unpack_from(result.stderr)
    words = result.stderr[_REPORT.size :].split(b"\0")[:-1]
    texts = [_printable(each) for each in words]
    # A name of the policy's is never taken for all there is.
    unsaved = [f"/.{each}" if each.startswith(f"{WHOLE}: ") else each for each in texts[:named]]
    if lost > named:
        unsaved.append(f"{WHOLE}: {lost - named} more paths are not saved")
    data = _MAGIC + _compressor().compress(result.stdout) if result.stdout else b""
    return SandboxDelta(number, data, files, removed, tuple(unsaved), tuple(texts[named:]))


def refused(number: int, why: str) -> SandboxDelta:
    """Return what stands for a delta that could not be made after delta `number - 1`."""
    return SandboxDelta(number - 1, unsaved=(f"{WHOLE}: {why}",))


def records_of(delta: SandboxDelta) -> bytes:
    """Return the records of a delta. SandboxError for data that is none, or too large. Blocks."""
    if not delta.data:
        return _END
    if not delta.data.startswith(_MAGIC):
        raise _damaged("it does not begin as deltas of this version do")
    frame = delta.data[len(_MAGIC) :]
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= _MAX_STREAM_BYTES:
            raise _damaged(f"it says that it has {size} bytes")
        return zstandard.ZstdDecompressor().decompress(
            frame, max_output_size=_MAX_STREAM_BYTES, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise _damaged(f"it is no whole zstd frame ({error})") from error


def check_restored(result: ExecResult) -> None:
    """Raise SandboxError, with the path, when a delta was not restored in full."""
    if not result.ok:
        raise SandboxError(
            "a sandbox can't be brought to its earlier state",
            why=_why(result),
            fix="start it from the same image as before, with the same mounts and as much room; "
            "use a fresh sandbox, for this one is neither as it was nor as it should be",
        )


def _why(result: ExecResult) -> str:
    if result.timed_out:
        return "its files took too long"
    said = _printable(result.stderr[:1000])
    return said or f"the process that walks over them ended with {result.exit_code}"


def _printable(said: bytes) -> str:
    """Decode what names of the policy are part of; a terminal may show it."""
    text = said.decode("utf-8", "backslashreplace")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _damaged(why: str) -> SandboxError:
    return SandboxError(
        "a sandbox's delta can't be read",
        why=why,
        fix="use the delta as `changes` returned it",
        retryable=False,
    )


def _compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
