"""Surfaces that are broken on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable

from rollout_dev.fuzz.surface import Shape, Surface, promise

_KEPT: list[bytes] = []


def _surface(run: Callable[[bytes], None], *, cpu_s: float = 0.2) -> Surface:
    lines = [b"one\ntwo\nthree", b"four\nbad\nfive" * 3]
    return Surface("planted", "lines", lambda: lines, run, (ValueError,), Shape.TEXT, cpu_s=cpu_s)


def _crash(data: bytes) -> None:
    if b"bad" in data:
        raise KeyError(data)
    if b"two" in data:
        raise ValueError(data)


def _hang(data: bytes) -> None:
    while b"bad" in data:
        pass


def _die(data: bytes) -> None:
    if b"bad" in data:
        os._exit(3)


def _grow(data: bytes) -> None:
    if b"bad" in data and not _KEPT:
        _KEPT.append(b"x" * (400 << 20))


def _lie(data: bytes) -> None:
    promise(b"bad" not in data, "there is nothing bad")


CRASH, HANG, DIE, LIE = map(_surface, (_crash, _hang, _die, _lie))
GROW = _surface(_grow, cpu_s=10.0)
"""A machine may take long to find so much memory; that is no hang."""
