"""Run inputs of surfaces in this process: `python -m rollout_dev.fuzz.child PROGRESS`.

It reads orders from stdin and answers each with a line, both JSON. Before an input is run, its
number is written into the file PROGRESS. An input that takes too much processor time ends the
process by SIGPROF, with a traceback on stderr, also inside of code written in C.
"""

from __future__ import annotations

import base64
import faulthandler
import logging
import mmap
import os
import re
import resource
import signal
import struct
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from rollout_dev.fuzz.mutate import Mutator
from rollout_dev.fuzz.surface import MEMORY_BYTES, Surface
from rollout_dev.fuzz.surfaces import load

PROGRESS_BYTES: Final = 8
_ADDRESS_SPACE: Final = 3 << 30
"""What a process may add to its address space: what asks for more gets a MemoryError."""
_HIGH_WATER: Final = re.compile(rb"VmHWM:\s+(\d+) kB")
_KEPT: Final = 200
"""Findings of one order that are reported."""


class Order(msgspec.Struct, frozen=True):
    """What the parent asks for: inputs of a range, or one input that it names."""

    surface: str
    seed: int = 0
    start: int = 0
    stop: int = 0
    given: str = ""
    """An input in base64, in place of a range."""
    only_make: bool = False
    """Return the first input of the range, and run none."""


class Found(msgspec.Struct, frozen=True):
    """An input that broke a rule."""

    number: int
    signature: str
    """The same for inputs that break it at the same place."""
    details: str
    data: str
    """The input, in base64."""


class Reply(msgspec.Struct, frozen=True):
    """What came of an order."""

    accepted: int = 0
    refused: int = 0
    """By documented errors."""
    found: tuple[Found, ...] = ()
    counts: dict[str, int] = {}
    """How many inputs broke a rule, by signature."""
    samples: int = 0
    made: str = ""


class Child:
    """Carries out orders."""

    def __init__(self, progress: Path) -> None:
        with progress.open("r+b") as file:
            self._progress = mmap.mmap(file.fileno(), PROGRESS_BYTES)
        self._known: dict[str, tuple[Surface, Mutator]] = {}

    def carry_out(self, order: Order) -> Reply:
        """Run the inputs of an order."""
        surface, mutator = self._surface(order.surface)
        if order.only_make:
            made = mutator.input(order.seed, order.start)
            return Reply(made=base64.b64encode(made).decode(), samples=len(mutator.samples))
        accepted = refused = 0
        found: dict[str, Found] = {}
        counts: Counter[str] = Counter()
        numbers = range(order.start, order.stop) if not order.given else range(1)
        for number in numbers:
            self._progress[:] = struct.pack("<Q", number)
            given = base64.b64decode(order.given)
            data = given if order.given else mutator.input(order.seed, number)
            outcome = run_one(surface, data)
            if isinstance(outcome, bool):
                accepted, refused = accepted + outcome, refused + (not outcome)
                continue
            signature, details = outcome
            counts[signature] += 1
            if len(found) < _KEPT:
                encoded = base64.b64encode(data).decode()
                found.setdefault(signature, Found(number, signature, details, encoded))
        return Reply(accepted, refused, tuple(found.values()), dict(counts), len(mutator.samples))

    def _surface(self, name: str) -> tuple[Surface, Mutator]:
        if name not in self._known:
            surface = load(name)
            self._known[name] = surface, Mutator(surface, tuple(surface.samples()))
            _bound_address_space()
        return self._known[name]


def run_one(surface: Surface, data: bytes) -> bool | tuple[str, str]:
    """Run one input: True when it was accepted, False when refused, else what it broke, and how."""
    before = _peak()
    signal.setitimer(signal.ITIMER_PROF, surface.cpu_s)
    try:
        surface.run(data)
        accepted = True
    except surface.documented as error:
        str(error)
        accepted = False
    except Exception as error:  # noqa: BLE001 - anything else is what we look for
        return _signature(error), "".join(traceback.format_exception(error))[-4000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if (more := _peak() - before) > MEMORY_BYTES:
        return "memory", f"{more >> 20} MiB more for {len(data)} bytes"
    return accepted


def _signature(error: BaseException) -> str:
    """Name the error and the innermost place of our code that it went through."""
    if isinstance(error, BaseExceptionGroup):
        return _signature(error.exceptions[0])
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        each
        for each in frames
        if "/swe_rollout/" in each.filename or "rollout_operator" in each.filename
    ]
    place = ours[-1] if ours else frames[-1]
    kind = type(error).__name__
    if kind == "BrokenPromiseError":
        return f"{kind}: {str(error)[:60]}"
    return f"{kind} in {Path(place.filename).name}:{place.name}"


def _peak() -> int:
    """Return the most memory that this program has held; `getrusage` adds who started it."""
    status = Path("/proc/self/status").read_bytes()
    return int(_HIGH_WATER.search(status)[1]) * 1024  # type: ignore[index]


def _bound_address_space() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_SPACE, hard))


def main(arguments: Sequence[str]) -> None:
    """Carry out orders until stdin ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    # The default action behind it ends the process.
    faulthandler.register(signal.SIGPROF, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    child = Child(Path(arguments[0]))
    decoder = msgspec.json.Decoder(Order)
    replies = os.fdopen(os.dup(1), "wb")
    # What a surface prints is not to get between the replies.
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        replies.write(msgspec.json.encode(child.carry_out(decoder.decode(line))) + b"\n")
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
