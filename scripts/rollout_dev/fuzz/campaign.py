"""Run a surface in a child process, watch it, and minimise what it finds."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import msgspec

from rollout_dev.fuzz.child import PROGRESS_BYTES, Order, Reply


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


_SCRIPTS: Final = Path(__file__).parents[2]
_BATCH: Final = 500
_SILENT_S: Final = 120.0
"""Wall time of one input without an end: it waits for something. Generous: machines are shared."""
_TRIES: Final = 600
TRIES_OF_DEATHS: Final = 25


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that inputs broke, with the smallest input that is known to."""

    surface: str
    signature: str
    details: str
    data: bytes
    number: int
    count: int


@dataclass(slots=True)
class Result:
    """What a surface did with its inputs."""

    surface: str
    samples: int = 0
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)


class Died(Exception):  # noqa: N818 - said of the child
    """The child ended, or had to be ended, in the middle of an input."""

    def __init__(self, number: int, signature: str, details: str) -> None:
        super().__init__(signature)
        self.number = number
        self.signature = signature
        self.details = details


class ChildProcess:
    """A child that is started again when it dies."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._progress = Path(self._folder.name, "progress")
        self._progress.write_bytes(bytes(PROGRESS_BYTES))
        self._errors = Path(self._folder.name, "stderr")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def ask(self, order: Order) -> Reply:
        """Return what came of an order; raises Died when its child did not survive it."""
        process = self._process or self._start()
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
        line = self._line(process)
        if line is None:
            raise self._death(process)
        return msgspec.json.decode(line, type=Reply)

    def _line(self, process: subprocess.Popen[bytes]) -> bytes | None:
        """Read one line; none where the child has ended, or does not go on."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        pipe, data = process.stdout.fileno(), bytearray()
        at, since = self._at(), time.monotonic()
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], 1.0)
            if ready:
                chunk = os.read(pipe, 1 << 20)
                if not chunk:
                    return None
                data += chunk
            elif self._at() != at:
                at, since = self._at(), time.monotonic()
            elif time.monotonic() - since > _SILENT_S:
                return None
        return bytes(data)

    def _at(self) -> int:
        return int(struct.unpack("<Q", self._progress.read_bytes())[0])

    def _death(self, process: subprocess.Popen[bytes]) -> Died:
        number = self._at()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        code = process.poll()
        self._stop()
        said = self._errors.read_text(errors="replace")[-3000:]
        match code:
            case None:
                return Died(number, "waits without an end", said)
            case _ if code == -signal.SIGPROF:
                return Died(number, "hang", said)
            case _:
                return Died(number, f"the process died: {code}", said)

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [str(_SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rollout_dev.fuzz.child", str(self._progress)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"},
            )
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


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

    Where one ends its process, each of the `tries_of_deaths` to make it smaller starts another.
    """
    result, began, start = Result(surface), time.monotonic(), 0
    while start < inputs:
        stop = min(inputs, start + _BATCH)
        order = Order(surface, seed, start, stop)
        try:
            reply = child.ask(order)
        except Died as died:
            _add(result, Finding(surface, died.signature, died.details, b"", died.number, 1))
            # What came before it is counted as run; it was, though its reply is lost.
            next_start = max(start, died.number) + 1
            result.inputs += next_start - start
            start = next_start
            continue
        result.samples = reply.samples
        result.inputs += stop - start
        result.accepted += reply.accepted
        result.refused += reply.refused
        for found in reply.found:
            data, count = base64.b64decode(found.data), reply.counts[found.signature]
            _add(
                result,
                Finding(surface, found.signature, found.details, data, found.number, count),
            )
        start = stop
        result.seconds = time.monotonic() - began
        on_progress(result)
    for signature, finding in result.findings.items():
        result.findings[signature] = _smallest(child, finding, seed, tries_of_deaths)
    result.seconds = time.monotonic() - began
    return result


def _add(result: Result, finding: Finding) -> None:
    known = result.findings.get(finding.signature)
    if known is None:
        result.findings[finding.signature] = finding
    else:
        count = known.count + finding.count
        result.findings[finding.signature] = Finding(
            known.surface, known.signature, known.details, known.data, known.number, count
        )


def _smallest(child: ChildProcess, finding: Finding, seed: int, tries_of_deaths: int) -> Finding:
    """Return the finding with a smaller input that breaks the same rule."""
    data, deadly = finding.data, not finding.data
    if deadly:
        order = Order(finding.surface, seed, finding.number, finding.number + 1, only_make=True)
        try:
            data = base64.b64decode(child.ask(order).made)
        except Died:  # it does not get as far as its first input
            return finding

    def breaks(smaller: bytes) -> bool:
        given = base64.b64encode(smaller).decode()
        if not given:
            return False
        try:
            reply = child.ask(Order(finding.surface, given=given))
        except Died as died:
            return died.signature == finding.signature
        return finding.signature in reply.counts

    smaller = minimised(data, breaks, tries=tries_of_deaths if deadly else _TRIES)
    return Finding(
        finding.surface, finding.signature, finding.details, smaller, finding.number, finding.count
    )


FOLDER: Final = Path(__file__).parents[3] / "tests" / "fuzz_cases"
MOST_BYTES: Final = 1 << 16
"""Of a kept input; larger ones are for a test of their own, which makes them."""


def cases() -> list[tuple[str, Path]]:
    """Return the surface and the file of each kept input."""
    return [(path.parent.name, path) for path in sorted(FOLDER.glob("*/*.bin"))]


def keep(finding: Finding) -> Path | None:
    """Write the input of a finding; none where it is too large to be kept."""
    if len(finding.data) > MOST_BYTES:
        return None
    words = re.sub(r"[^a-z0-9]+", "-", finding.signature.lower()).strip("-")[:60]
    digest = hashlib.sha256(finding.data).hexdigest()[:8]
    path = FOLDER / finding.surface / f"{words}-{digest}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(finding.data)
    return path
