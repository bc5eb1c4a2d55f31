"""The Python supervisor as a process: what it was given, how it looks, and what it leaves.

The rules it is written under are told in `main`.
"""

from __future__ import annotations

import os
from contextlib import suppress

NAME = b"swe-rollout-supervisor"
"""What a list of processes shows."""


def remove(path: str) -> None:
    """No such file any more, if that is possible."""
    with suppress(OSError):
        os.unlink(path)


def remove_folder(path: str) -> None:
    """No such folder any more, if it is empty."""
    with suppress(OSError):
        os.rmdir(path)


def environment() -> dict[bytes, bytes]:
    """What the container gave this process; Python itself adds to its own copy."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    except OSError:
        return dict(os.environb)
    return {name: value for name, _, value in pairs}


def hide() -> None:
    """Look like no Python in a list of processes: commands kill those by name."""
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/comm", "wb") as file:
            file.write(NAME[:15])
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        with open("/proc/self/mem", "r+b", 0) as memory:
            memory.seek(begin)
            memory.write(NAME[: end - begin - 1].ljust(end - begin, b"\0"))
