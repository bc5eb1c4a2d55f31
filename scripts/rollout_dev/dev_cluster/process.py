"""Processes identified by pid and start time.

A pid alone may already belong to another process when it is read from a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import ScriptError


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, past or present."""

    pid: int
    started: int
    """Clock ticks after boot, as the kernel counts them."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process that has this pid now, if any."""
        stat = _stat(pid)
        return None if stat is None else cls(pid, int(stat[19]))

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and int(stat[19]) == self.started and stat[0] != "Z"

    @property
    def family(self) -> list[Process]:
        """The process and all that descend from it; empty once it is gone."""
        # Its pid may be another process's by then.
        found = [self] if self.alive else []
        for each in found:  # which grows meanwhile
            found += filter(None, map(Process.of, children(each.pid)))
        return found

    def end(self, *, patience_seconds: float) -> None:
        """End it by SIGTERM, then by SIGKILL; return when it is gone."""
        self._signal(signal.SIGTERM)
        if not self.wait_gone(patience_seconds):
            self.kill()

    def kill(self) -> None:
        """End it by SIGKILL; return when it is gone."""
        self._signal(signal.SIGKILL)
        if not self.wait_gone(10):
            raise ScriptError(f"Process {self.pid} does not end, not even by SIGKILL.")

    def wait_gone(self, seconds: float) -> bool:
        """Wait until it is gone; return False after that time."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def children(pid: int) -> list[int]:
    """Return the current children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and int(stat[1]) == pid:
                found.append(int(entry.name))
    return found


def inner_pid(pid: int) -> int:
    """Return the pid of a process in its own pid namespace; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0


def start_detached(
    command: list[str], log: Path, *, keep: tuple[int, ...] = (), env: dict[str, str] | None = None
) -> Process:
    """Start a process that outlives the calling shell; its output goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=keep,
            env=env,
            cwd="/",
        )
    # It is meant to keep running; otherwise Python would warn when the object is collected.
    started.returncode = 0
    process = Process.of(started.pid)
    if process is None:
        raise ScriptError(f"{command[0]} ended at once.", why=tail(log))
    return process


def tail(log: Path, *, lines: int = 15) -> str:
    """Return the end of a log, for an error message."""
    try:
        content = log.read_text(errors="replace").splitlines()
    except OSError:
        return f"{log} cannot be read"
    return "\n".join(content[-lines:]) or f"{log} is empty"


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command's name, which may contain anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


class Kind(StrEnum):
    """The way the cluster runs."""

    NATIVE = "native"
    KIND = "kind"


@dataclass(frozen=True, slots=True)
class Forward:
    """A relay from the node's address to a loopback port of the machine."""

    port: int
    process: Process


@dataclass(frozen=True, slots=True)
class Record:
    """A run of the cluster."""

    kind: Kind
    checkout: str
    """The checkout's path, so that a copy of the folder does not claim the original's processes."""
    port: int = 0
    node: Process | None = None
    """The native cluster's first process."""
    forwards: tuple[Forward, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the native cluster's first process still runs."""
        return self.node is not None and self.node.alive

    @property
    def server(self) -> str:
        """The address of the native cluster's API server on this machine."""
        return f"https://127.0.0.1:{self.port}"

    def write(self, checkout: Checkout) -> None:
        """Write it atomically."""
        partial = _record_path(checkout).with_suffix(".new")
        partial.write_text(json.dumps(asdict(self)))
        partial.rename(_record_path(checkout))


def read_record(checkout: Checkout) -> Record | None:
    """Read the record of this checkout's last run, if there is one and it is not a copy."""
    try:
        value = json.loads(_record_path(checkout).read_text())
        found = Record(
            Kind(value["kind"]),
            str(value["checkout"]),
            int(value["port"]),
            Process(**value["node"]) if value["node"] else None,
            tuple(Forward(int(f["port"]), Process(**f["process"])) for f in value["forwards"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.checkout == str(checkout.root) else None


def delete_record(checkout: Checkout) -> None:
    """Delete the record, because nothing of this checkout runs any more."""
    _record_path(checkout).unlink(missing_ok=True)


def _record_path(checkout: Checkout) -> Path:
    return checkout.state / "cluster.json"
