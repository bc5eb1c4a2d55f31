"""Start the command from a process that has imported it already: a fork, with 0.1 s of CPU for 3.

A server imports what the verbs import, and forks for each request. The fork gets the caller's
arguments, folder, environment and standard streams, and ends as the command ends. Start-up itself
is tested with the plain command, by tests that start `COMMAND`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED = (
    "swe_rollout.cli.main",
    "swe_rollout.cli.run",
    "swe_rollout.launcher.play",
    "swe_rollout.worker.job",
    "swe_rollout.worker.assembly",
    "swe_rollout.engine.scripted.engine",
    "swe_rollout.export.parquet",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_tokenizers",
)
READ_BY_LIBRARIES = ("HF_", "TRANSFORMERS_", "PYTHON", "TOKENIZERS_", "OPENBLAS_", "LC_", "LANG")
"""Variables that libraries read when they are imported."""


def run(arguments: list[str], *, folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run the command in the folder with this process's environment, and capture its output."""
    server = _Server.here()
    environment = {**os.environ}
    if not server.suits(environment):
        command = [sys.executable, "-m", "swe_rollout.cli.main", *arguments]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
        )
    request = {"arguments": arguments, "folder": str(folder), "environment": environment}
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
        socket.socket(socket.AF_UNIX) as asked,
    ):
        asked.settimeout(timeout)
        asked.connect(server.address)
        streams = [each.fileno() for each in (nothing, out, err)]
        socket.send_fds(asked, [b"streams"], streams)
        asked.sendall(json.dumps(request).encode() + b"\n")
        status = asked.makefile("rb").readline()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            arguments, int(status), out.read().decode(), err.read().decode()
        )


class _Server:
    """The server of this process."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="swe-rollout-warm-")
        self.address = f"{folder}/socket"
        self._environment = {**os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens
        atexit.register(self._process.kill)

    @classmethod
    @cache
    def here(cls) -> _Server:
        return cls()

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether libraries would be imported in the same way under this environment."""
        differing = self._environment.items() ^ environment.items()
        return not any(name.startswith(READ_BY_LIBRARIES) for name, _ in differing)


def serve(address: str) -> bool:
    """Fork for each request; true in a fork that is to be the command, false at the end."""
    logging.disable()  # transformers misses PyTorch
    for each in IMPORTED:
        importlib.import_module(each)
    logging.disable(logging.NOTSET)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
            asked, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return _become_the_command(asked)
            asked.close()
    return False


def _become_the_command(asked: socket.socket) -> bool:
    """Fork once more: the outer process waits for the command, and tells how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(asked, 7, 3)
    request: dict[str, Any] = json.loads(asked.makefile("rb").readline())
    child = os.fork()
    if child == 0:
        asked.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv[1:] = request["arguments"]
        sys.path.insert(0, request["folder"])  # as by `python -m`
        return True
    ended = os.pidfd_open(child)
    if asked.fileno() in select.select([asked.fileno(), ended], [], [])[0]:  # the caller has gone
        os.kill(child, signal.SIGKILL)
    asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


if __name__ == "__main__" and serve(sys.argv[1]):
    from swe_rollout.cli.main import main

    main()
