"""Authentication of frames: only the supervisor and the session can speak on their stream.

Processes in a sandbox run as the supervisor's user, and may get hold of its pipes. So each frame
carries a keyed hash over the stream's number, its position, its direction and its content. The key
is in this process and in the supervisor's memory, which no other process there can read.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

KEY_BYTES: Final = 32
_CODE_BYTES: Final = 16
_HEADER: Final = struct.Struct("<QII")
_PLACE: Final = struct.Struct("<QQc")
HEADER_BYTES: Final = _HEADER.size + _CODE_BYTES


@dataclass(frozen=True, slots=True)
class Frame:
    """The number of a request, the kind of the frame, and its content."""

    number: int
    kind: int
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class SealedHeader:
    """The header of a sealed frame: its plain values and its authentication code."""

    number: int
    kind: int
    length: int
    code: bytes


def parse_header(data: bytes) -> SealedHeader:
    """Read the first `HEADER_BYTES` bytes of a frame."""
    number, kind, length = _HEADER.unpack_from(data)
    return SealedHeader(number, kind, length, data[_HEADER.size :])


class Side(Enum):
    """The two ends of a stream, by the frames they send: requests or responses."""

    SESSION = b"q"
    SUPERVISOR = b"r"


class FrameSeal:
    """Seals the frames that one side of a stream sends, in order, and checks those it receives."""

    def __init__(self, key: bytes, stream: int, *, side: Side = Side.SESSION) -> None:
        """Create a seal; later streams of a session have higher `stream` numbers."""
        self._key = key
        self._stream = stream
        self._own = side
        self._other = Side.SUPERVISOR if side is Side.SESSION else Side.SESSION
        self._sent = 0
        self._received = 0

    def seal(self, frame: Frame) -> bytes:
        """Encode the next frame to send."""
        header = _HEADER.pack(frame.number, frame.kind, len(frame.body))
        code = self._code(self._own, self._sent, header, frame.body)
        self._sent += 1
        return b"".join([header, code, frame.body])

    def is_genuine(self, header: SealedHeader, body: bytes) -> bool:
        """Whether the next received frame comes from the other side, unchanged and in sequence."""
        plain = _HEADER.pack(header.number, header.kind, header.length)
        code = self._code(self._other, self._received, plain, body)
        self._received += 1
        return hmac.compare_digest(code, header.code)

    def _code(self, sender: Side, position: int, header: bytes, body: bytes) -> bytes:
        place = _PLACE.pack(self._stream, position, sender.value)
        state = hashlib.blake2b(place, key=self._key, digest_size=_CODE_BYTES)
        state.update(header)
        state.update(body)
        return state.digest()
