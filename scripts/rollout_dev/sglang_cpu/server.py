"""One server process: start it, find it from a later command, stop it with its children.

Its state folder has `server.json` and `log`. A killed server can be restarted from there, with the
same flags at the same address.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

READY_S = 900.0
STOP_S = 20.0
_LOG_LINES = 15


class ServerError(Exception):
    """The server cannot be started or stopped; the text says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server, and how to check that it is ready."""

    command: list[str]
    """The command, without the port."""
    ready_path: str = "/ready"
    """Responds with 200 as soon as the server accepts requests."""


@dataclass(frozen=True, slots=True)
class _Record:
    pid: int
    started: str
    """The start time by the kernel's clock: a later process with the same pid is not ours."""
    url: str
    command: list[str]
    ready_path: str

    @property
    def is_alive(self) -> bool:
        return _started(self.pid) == self.started

    @property
    def is_ready(self) -> bool:
        # A proxy from the environment must not be used for a loopback address.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(self.url + self.ready_path, timeout=5) as response:
                return bool(response.status == 200)  # noqa: PLR2004 - HTTP
        except (urllib.error.URLError, OSError):
            return False


def start(server: Server, *, state: Path, env: dict[str, str]) -> str:
    """Start it with a free `--port`, wait until it is ready, return its address."""
    url = f"http://127.0.0.1:{_free_port()}"
    state.mkdir(parents=True, exist_ok=True)
    (state / "log").unlink(missing_ok=True)
    return _launch(_Record(0, "", url, server.command, server.ready_path), state=state, env=env)


def restart(state: Path, *, env: dict[str, str]) -> str:
    """Restart a killed server at the same address; raises ServerError if it still runs."""
    record = _recorded(state)
    if record is None:
        raise ServerError(f"no server was ever started in {state}")
    if record.is_alive:
        raise ServerError(f"the server still runs at {record.url}")
    return _launch(record, state=state, env=env)


def running(state: Path) -> str | None:
    """Return the address of the server if it runs and is ready."""
    record = _recorded(state)
    return record.url if record is not None and record.is_alive and record.is_ready else None


def kill(state: Path) -> None:
    """Kill the server and its children at once, like a crash; `restart` brings it back."""
    record = _recorded(state)
    if record is None or not record.is_alive:
        raise ServerError(f"no server runs in {state}")
    _end(_tree(record.pid))


def stop(state: Path) -> None:
    """Stop the server and its children, and remove its record; does nothing when none runs."""
    record = _recorded(state)
    if record is None:
        return
    if record.is_alive:
        # Children may leave the session: read the tree before its root is gone.
        tree = _tree(record.pid)
        os.kill(record.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while any(process.is_alive for process in tree) and time.monotonic() < deadline:
            time.sleep(0.2)
        _end(tree)
    (state / "server.json").unlink()


def _launch(record: _Record, *, state: Path, env: dict[str, str]) -> str:
    log = state / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*record.command, "--port", record.url.rsplit(":", 1)[1]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    record = replace(record, pid=process.pid, started=_started(process.pid) or "")
    (state / "server.json").write_text(json.dumps(asdict(record)))
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"the server ended with {process.returncode}\n{_tail(log)}")
        if record.is_ready:
            return record.url
        time.sleep(0.5)
    stop(state)
    raise ServerError(f"the server was not ready within {READY_S:g} s\n{_tail(log)}")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return _started(self.pid) == self.started


def _recorded(state: Path) -> _Record | None:
    try:
        return _Record(**json.loads((state / "server.json").read_text()))
    except FileNotFoundError:
        return None


def _end(tree: list[_Process]) -> None:
    for process in tree:
        if process.is_alive:
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_S
    while any(process.is_alive for process in tree) and time.monotonic() < deadline:
        time.sleep(0.05)


def _tree(root: int) -> list[_Process]:
    """Return the process and all its descendants."""
    parents = {
        int(folder.name): fields[1]
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (fields := _stat(int(folder.name))) is not None
    }
    pids, found = [root], [root]
    while pids:
        pids = [pid for pid, parent in parents.items() if int(parent) in pids]
        found += pids
    return [_Process(pid, start) for pid in found if (start := _started(pid)) is not None]


def _started(pid: int) -> str | None:
    """Return a process's start in clock ticks since boot; None if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else fields[19]


def _stat(pid: int) -> list[str] | None:
    """Read `/proc/PID/stat` from the state field on: the name before it may contain anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _free_port() -> int:
    """Return a port that no connection is given while the server takes a minute to start."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := random.randrange(20_000, 30_000)))  # noqa: S311
            return port


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join((f"the end of {log}:", *lines))


_GB = 1e9
_CGROUP = Path("/sys/fs/cgroup")


def require_disk(folder: Path, gigabytes: float) -> None:
    """Raise ServerError if the folder's disk has less free space."""
    free = shutil.disk_usage(folder).free / _GB
    if free < gigabytes:
        raise ServerError(f"{folder} needs {gigabytes:g} GB of disk; {free:.1f} GB are free")


def require_memory(gigabytes: float) -> None:
    """Raise ServerError if the machine or the container has less free memory."""
    left = min(_of_machine(), _of_container()) / _GB
    if left < gigabytes:
        raise ServerError(f"a server needs {gigabytes:g} GB of memory; {left:.1f} GB are left")


def _of_machine() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kilobytes) * 1024


def _of_container() -> float:
    """Free memory up to the limit of this control group; the page cache counts as free."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        return float("inf")
    return float("inf") if limit == "max" else int(limit) - used + int(stat["inactive_file"])
