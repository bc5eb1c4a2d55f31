"""Make an input smaller that breaks a rule: delta debugging over lines, then over bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def minimised(data: bytes, breaks: Callable[[bytes], bool], *, tries: int) -> bytes:
    """Return a part of the data that still `breaks` the rule; at most so many `tries` are made."""
    left = [tries]

    def holds(pieces: Sequence[bytes]) -> bool:
        left[0] -= 1
        return left[0] >= 0 and breaks(b"".join(pieces))

    for pieces in (data.splitlines(keepends=True), None):
        parts = pieces if pieces is not None else [data[i : i + 1] for i in range(len(data))]
        data = b"".join(_fewer(parts, holds))
    return data


def _fewer(pieces: list[bytes], holds: Callable[[Sequence[bytes]], bool]) -> list[bytes]:
    size = max(1, len(pieces) // 2)
    while size:
        at = 0
        while at < len(pieces):
            without = pieces[:at] + pieces[at + size :]
            if without and holds(without):
                pieces = without
            else:
                at += size
        size //= 2
    return pieces
