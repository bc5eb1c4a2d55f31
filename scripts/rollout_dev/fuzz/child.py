"""Run inputs of surfaces in a separate process with limited memory and processor time.

An input that takes too much processor time ends the process with SIGPROF and a traceback on
stderr, even inside C code.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import re
import resource
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import structlog

from rollout_dev.fuzz.mutate import Mutator
from rollout_dev.fuzz.surface import MEMORY_BYTES, Surface
from rollout_dev.fuzz.surfaces import load

_ADDRESS_SPACE: Final = 3 << 30
"""Maximum growth of the process's address space; beyond it, allocations raise MemoryError."""
_HIGH_WATER: Final = re.compile(rb"VmHWM:\s+(\d+) kB")


@dataclass(frozen=True, slots=True)
class Order:
    """The parent's order: run the inputs of a range, or one given input."""

    surface: str
    seed: int = 0
    numbers: range = range(1)
    given: bytes = b""
    """An input to run instead of the range."""
    only_make: bool = False
    """Whether to return the first input of the range without running any."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that inputs broke, with the smallest known input that does."""

    surface: str
    signature: str
    """An identifier shared by inputs that break the rule at the same place."""
    details: str
    data: bytes
    number: int
    count: int = 1

    def of(self, more: int) -> Finding:
        """Return the finding with further inputs added to its count."""
        return replace(self, count=self.count + more)


@dataclass(slots=True)
class Reply:
    """The result of an order."""

    samples: int
    made: bytes = b""
    accepted: int = 0
    refused: int = 0
    """Number of inputs refused with documented errors."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """Findings by signature."""

    def add(self, *found: Finding) -> None:
        """Add findings to those of the same signatures."""
        for each in found:
            known = self.findings.get(each.signature)
            self.findings[each.signature] = each if known is None else known.of(each.count)


class Child:
    """Carries out orders."""

    def __init__(self, progress: ctypes.c_ulonglong) -> None:
        self._progress = progress
        """The number of the input that is being run."""
        self._known: dict[str, tuple[Surface, Mutator]] = {}

    def carry_out(self, order: Order) -> Reply:
        """Run the inputs of an order."""
        surface, mutator = self._surface(order.surface)
        reply = Reply(len(mutator.samples))
        if order.only_make:
            reply.made = mutator.input(order.seed, order.numbers.start)
            return reply
        for number in order.numbers:
            self._progress.value = number
            data = order.given or mutator.input(order.seed, number)
            outcome = run_one(surface, data)
            if isinstance(outcome, bool):
                reply.accepted += outcome
                reply.refused += not outcome
            else:
                reply.add(Finding(order.surface, *outcome, data, number))
        return reply

    def _surface(self, name: str) -> tuple[Surface, Mutator]:
        if name not in self._known:
            surface = load(name)
            self._known[name] = surface, Mutator(surface, tuple(surface.samples()))
            _bound_address_space()
        return self._known[name]


def run_one(surface: Surface, data: bytes) -> bool | tuple[str, str]:
    """Run one input; return True if accepted, False if refused, else the broken rule and how."""
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
    """Return the error's name and the innermost frame of our code in its traceback."""
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
    """Return this program's peak memory; `getrusage` would include its parent's."""
    status = Path("/proc/self/status").read_bytes()
    return int(_HIGH_WATER.search(status)[1]) * 1024  # type: ignore[index]


def _bound_address_space() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_SPACE, hard))


def serve(orders: Connection, progress: ctypes.c_ulonglong, errors: str) -> None:
    """Carry out orders until the connection closes; output of surfaces goes to a file."""
    with Path(errors).open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    # The default action, which follows, ends the process.
    faulthandler.register(signal.SIGPROF, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    child = Child(progress)
    with suppress(EOFError):
        while True:
            orders.send(child.carry_out(orders.recv()))
