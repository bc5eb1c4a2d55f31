"""One server process: start it, find it from a later command, stop it with its children.

Its state folder has `server.json` and `log`. A killed server can be restarted from there, with the
same flags at the same address.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.dev_cluster.process import Process, start_detached, tail

READY_S = 900.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server, and how to check that it is ready."""

    command: list[str]
    """The command, without the port."""
    ready_path: str = "/ready"
    """Responds with 200 as soon as the server accepts requests."""


@dataclass(frozen=True, slots=True)
class _Record:
    url: str
    command: list[str]
    ready_path: str
    pid: int = 0
    started: str = ""

    @property
    def process(self) -> Process:
        return Process(self.pid, int(self.started or 0))

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
    return _launch(_Record(url, server.command, server.ready_path), state=state, env=env)


def restart(state: Path, *, env: dict[str, str]) -> str:
    """Restart a killed server at the same address; raises ScriptError if it still runs."""
    record = _recorded(state)
    if record is None:
        raise ScriptError(f"no server was ever started in {state}")
    if record.process.alive:
        raise ScriptError(f"the server still runs at {record.url}")
    return _launch(record, state=state, env=env)


def running(state: Path) -> str | None:
    """Return the address of the server if it runs and is ready."""
    record = _recorded(state)
    if record is None or not record.process.alive:
        return None
    return record.url if record.is_ready else None


def kill(state: Path) -> None:
    """Kill the server and its children at once, like a crash; `restart` brings it back."""
    record = _recorded(state)
    if record is None or not record.process.alive:
        raise ScriptError(f"no server runs in {state}")
    for process in record.process.family:
        process.kill()


def stop(state: Path) -> None:
    """Stop the server and its children, and remove its record; does nothing when none runs."""
    record = _recorded(state)
    if record is None:
        return
    # Children may leave the session: read the tree before its root is gone.
    family = record.process.family
    record.process.end(patience_seconds=STOP_S)
    for process in family:
        process.kill()
    (state / "server.json").unlink()


def _launch(record: _Record, *, state: Path, env: dict[str, str]) -> str:
    log = state / "log"
    command = [*record.command, "--port", record.url.rsplit(":", 1)[1]]
    process = start_detached(command, log, env=env)
    record = replace(record, pid=process.pid, started=str(process.started))
    (state / "server.json").write_text(json.dumps(asdict(record)))
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if not process.alive:
            raise ScriptError("the server ended", why=f"the end of {log}:\n{tail(log)}")
        if record.is_ready:
            return record.url
        time.sleep(0.5)
    stop(state)
    raise ScriptError(f"the server was not ready within {READY_S:g} s", why=tail(log))


def _recorded(state: Path) -> _Record | None:
    try:
        return _Record(**json.loads((state / "server.json").read_text()))
    except FileNotFoundError:
        return None


def _free_port() -> int:
    """Return a port that no connection is given while the server takes a minute to start."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := random.randrange(20_000, 30_000)))  # noqa: S311
            return port


_GB = 1e9
_CGROUP = Path("/sys/fs/cgroup")


def require_disk(folder: Path, gigabytes: float) -> None:
    """Raise ScriptError if the folder's disk has less free space."""
    free = shutil.disk_usage(folder).free / _GB
    if free < gigabytes:
        raise ScriptError(f"{folder} needs {gigabytes:g} GB of disk; {free:.1f} GB are free")


def require_memory(gigabytes: float) -> None:
    """Raise ScriptError if the machine or the container has less free memory."""
    left = min(_of_machine(), _of_container()) / _GB
    if left < gigabytes:
        raise ScriptError(f"a server needs {gigabytes:g} GB of memory; {left:.1f} GB are left")


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
