"""Packed objects of a store: zstd frames with checksums, refused where they are not whole.

What is unpacked is bounded before: an object of any size may claim to be of any other.
"""

from __future__ import annotations

import hashlib
from typing import Final

import zstandard

MAX_BYTES: Final = 2 << 30
"""Largest object that is unpacked."""


def pack(data: bytes, *, level: int) -> bytes:
    """Return data as a frame; a higher `level`, 1 to 22, makes a smaller one and takes longer."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)


def unpack(packed: bytes) -> bytes:
    """Return what was packed. Raises ValueError when it is damaged or too large."""
    try:
        if zstandard.frame_content_size(packed) > MAX_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_BYTES >> 30} GiB")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(f"it is no whole zstd frame ({error})") from error


def unpack_recorded(packed: bytes, *, size: int, sha256: str, most: int = MAX_BYTES) -> bytes:
    """Return what was packed, if its bytes are as many and the same as a record says.

    Raises ValueError when they are not, or more than `most`.
    """
    try:
        found = zstandard.frame_content_size(packed)
        if found != size or not 0 <= found <= most:
            raise ValueError(f"it has {found} bytes, not {size}")
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(f"it is no whole zstd frame ({error})") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError("its content is not what the record says")
    return data
