"""Run a surface in a child process, watch it, and minimise its findings."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final, Self
from unittest.mock import patch

from rollout_dev.fuzz.child import Finding, Order, Reply, serve


def minimised(data: bytes, breaks: Callable[[bytes], bool], *, tries: int) -> bytes:
    """Return a part of the data that still `breaks` the rule, found in at most `tries` tries."""
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


_SPAWN: Final = multiprocessing.get_context("spawn")
_BATCH: Final = 500
_SILENT_S: Final = 120.0
"""Wall time after which an input counts as stuck; generous, because machines are shared."""
_TRIES: Final = 600
TRIES_OF_DEATHS: Final = 25


@dataclass(slots=True)
class Result:
    """The result of running a surface on its inputs."""

    surface: str
    inputs: int = 0
    seconds: float = 0.0
    total: Reply = field(default_factory=lambda: Reply(0))

    @property
    def findings(self) -> dict[str, Finding]:
        """The findings by signature."""
        return self.total.findings


class Died(Exception):  # noqa: N818 - said of the child
    """The child ended, or had to be killed, in the middle of an input."""

    def __init__(self, number: int, signature: str, details: str) -> None:
        super().__init__(signature)
        self.number = number
        self.signature = signature
        self.details = details


class ChildProcess:
    """A child process that is restarted when it dies."""

    def __init__(self) -> None:
        self._errors = tempfile.NamedTemporaryFile(prefix="fuzz-")  # noqa: SIM115 - until its end
        self._at = _SPAWN.RawValue("Q", 0)
        self._running: tuple[SpawnProcess, Connection] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._errors.close()

    def ask(self, order: Order) -> Reply:
        """Return the reply to an order. Raises Died if the child did not survive it."""
        process, pipe = self._running or self._start()
        with suppress(EOFError, ConnectionError):
            pipe.send(order)
            at, since = self._at.value, time.monotonic()
            while not pipe.poll(1.0):
                if self._at.value != at:
                    at, since = self._at.value, time.monotonic()
                elif time.monotonic() - since > _SILENT_S:
                    raise self._death(process)
            reply: Reply = pipe.recv()
            return reply
        raise self._death(process)

    def _death(self, process: SpawnProcess) -> Died:
        process.join(1.0)
        code = process.exitcode
        self._stop()
        said = Path(self._errors.name).read_text(errors="replace")[-3000:]
        if code is None:
            return Died(self._at.value, "waits without an end", said)
        how = "hang" if code == -signal.SIGPROF else f"the process died: {code}"
        return Died(self._at.value, how, said)

    def _start(self) -> tuple[SpawnProcess, Connection]:
        pipe, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=serve, args=(theirs, self._at, self._errors.name))
        with patch.dict(os.environ, HF_HUB_OFFLINE="1"):  # read by what the child imports
            process.start()
        theirs.close()
        self._running = process, pipe
        return self._running

    def _stop(self) -> None:
        if self._running is not None:
            process, pipe = self._running
            process.kill()
            process.join()
            pipe.close()
            self._running = None


def run_surface(
    child: ChildProcess,
    surface: str,
    *,
    inputs: int,
    seed: int,
    tries_of_deaths: int = TRIES_OF_DEATHS,
    on_progress: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Run the inputs of a surface, and minimise one of each kind that broke a rule.

    If an input kills its process, each of the `tries_of_deaths` to minimise it starts a new one.
    """
    result, began, start = Result(surface), time.monotonic(), 0
    while start < inputs:
        numbers = range(start, min(inputs, start + _BATCH))
        try:
            reply = child.ask(Order(surface, seed, numbers))
        except Died as died:
            result.total.add(Finding(surface, died.signature, died.details, b"", died.number))
            # Inputs before it were run too, so they are counted although their reply is lost.
            start = max(start, died.number) + 1
        else:
            result.total.samples = reply.samples
            result.total.accepted += reply.accepted
            result.total.refused += reply.refused
            result.total.add(*reply.findings.values())
            start = numbers.stop
        result.inputs, result.seconds = start, time.monotonic() - began
        on_progress(result)
    for signature, finding in result.findings.items():
        result.findings[signature] = _smallest(child, finding, seed, tries_of_deaths)
    result.seconds = time.monotonic() - began
    return result


def _smallest(child: ChildProcess, finding: Finding, seed: int, tries_of_deaths: int) -> Finding:
    """Return the finding with a smaller input that breaks the same rule."""
    data, deadly = finding.data, not finding.data
    if deadly:
        numbers = range(finding.number, finding.number + 1)
        try:
            data = child.ask(Order(finding.surface, seed, numbers, only_make=True)).made
        except Died:  # it dies before its first input
            return finding

    def breaks(smaller: bytes) -> bool:
        if not smaller:
            return False
        try:
            return finding.signature in child.ask(Order(finding.surface, given=smaller)).findings
        except Died as died:
            return died.signature == finding.signature

    smaller = minimised(data, breaks, tries=tries_of_deaths if deadly else _TRIES)
    return replace(finding, data=smaller)


FOLDER: Final = Path(__file__).parents[3] / "tests" / "fuzz_cases"
MOST_BYTES: Final = 1 << 16
"""Maximum size of a kept input; a larger one needs its own test, which generates it."""


def cases() -> list[tuple[str, Path]]:
    """Return the surface and the file of each kept input."""
    return [(path.parent.name, path) for path in sorted(FOLDER.glob("*/*.bin"))]


def keep(finding: Finding) -> Path | None:
    """Write the input of a finding; return None if it is too large to keep."""
    if len(finding.data) > MOST_BYTES:
        return None
    words = re.sub(r"[^a-z0-9]+", "-", finding.signature.lower()).strip("-")[:60]
    digest = hashlib.sha256(finding.data).hexdigest()[:8]
    path = FOLDER / finding.surface / f"{words}-{digest}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(finding.data)
    return path
