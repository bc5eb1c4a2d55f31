"""A surface: code that reads untrusted input, with the errors that it may raise.

An input is bytes. If a surface has several readers, the first line of an input names one of
them, and the rest is its input.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec

_T = TypeVar("_T")
CPU_S: Final = 10.0
"""Processor time of one input; more counts as a hang."""
_ROUNDS: Final = 5
MEMORY_BYTES: Final = 256 << 20
"""Maximum increase of the process's peak memory by one input."""


class Shape(Enum):
    """What the mutator knows about the inputs."""

    BYTES = auto()
    TEXT = auto()
    """Lines of UTF-8."""
    JSON = auto()


class BrokenPromiseError(Exception):
    """A reader returned a value that breaks a promise."""


@dataclass(frozen=True, slots=True)
class Surface:
    """One surface."""

    name: str
    about: str
    """What the surface reads, and who writes it."""
    samples: Callable[[], Sequence[bytes]]
    """Returns real inputs, at least one, from which others are made."""
    run: Callable[[bytes], None]
    """Reads one input."""
    documented: tuple[type[Exception], ...] = ()
    """The errors that refuse an input; any other error is a finding."""
    shape: Shape = Shape.BYTES
    words: tuple[str, ...] = ()
    """Pieces of the grammar to insert anywhere."""
    has_head: bool = False
    """Whether the first line names the reader."""
    write: Callable[[random.Random], bytes] | None = None
    """Writes an accepted input, for surfaces that reject nearly all changed samples."""
    cpu_s: float = CPU_S


class Described(msgspec.Struct, frozen=True):
    """The description of a surface in `surfaces/surfaces.json`."""

    about: str
    shape: str
    has_head: bool = False
    words: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    """Handmade inputs, before those that the surface finds or makes."""
    cpu_s: float = CPU_S


def described(name: str) -> Described:
    """Return the description of a surface."""
    return _all_described()[name]


@cache
def _all_described() -> dict[str, Described]:
    file = Path(__file__).parent / "surfaces" / "surfaces.json"
    return msgspec.convert(json.loads(file.read_text("utf-8")), dict[str, Described])


def surface(
    name: str,
    run: Callable[[bytes], None],
    *documented: type[Exception],
    samples: Callable[[], Iterable[bytes]] = tuple,
    write: Callable[[random.Random], bytes] | None = None,
) -> Surface:
    """Return a surface from its description; `samples` returns further inputs."""
    known = described(name)
    return Surface(
        name,
        known.about,
        lambda: [*(each.encode() for each in known.samples), *samples()],
        run,
        documented,
        Shape[known.shape],
        known.words,
        has_head=known.has_head,
        write=write,
        cpu_s=known.cpu_s,
    )


def split_head(data: bytes) -> tuple[str, bytes]:
    """Return the name of the reader and its input."""
    head, _, body = data.partition(b"\n")
    return head.decode(errors="replace"), body


def with_head(head: str, body: bytes) -> bytes:
    """Return an input for one of several readers."""
    return head.encode() + b"\n" + body


def promise(holds: object, what: str) -> None:
    """Raise BrokenPromiseError unless a promise holds."""
    if not holds:
        raise BrokenPromiseError(what)


class _Loop:
    """One event loop for all inputs of a process."""

    runner: asyncio.Runner | None = None


def run_async(coroutine: Coroutine[None, None, _T]) -> _T:
    """Run a coroutine to its end; a task left running, or an unseen failure, is a finding."""
    if _Loop.runner is None:
        _Loop.runner = asyncio.Runner()
    runner = _Loop.runner
    unseen: list[str] = []
    loop = runner.get_loop()
    loop.set_exception_handler(lambda _, context: unseen.append(str(context.get("message"))))
    try:
        result = runner.run(coroutine)
    finally:
        left = runner.run(_left())
    promise(not left, f"tasks are left: {left[:1]}")
    promise(not unseen, f"an error nobody saw: {unseen[:1]}")
    return result


async def _left() -> list[str]:
    """Cancel the remaining tasks and return their names."""
    for _ in range(_ROUNDS):  # tasks of the loop close abandoned generators
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return [str(task.get_coro()) for task in tasks]
