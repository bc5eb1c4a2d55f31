"""Start the command from a process that has imported it already: a fork, with 0.1 s of CPU for 3.

A server imports what the verbs import, and forks for each request. The fork gets the caller's
arguments, folder, environment and standard streams, and ends as the command ends. With `-c`, it
runs Python code instead. Start-up itself is tested with the plain command, by tests that start
`COMMAND`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
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
_SERVERS: dict[tuple[tuple[str, str], ...], tuple[str, ExitStack]] = {}
"""By the variables under which they began: a server's folder, and what ends it."""
_RUNNING = ExitStack()
atexit.register(_RUNNING.close)


def run(arguments: list[str], *, folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run the command in the folder with this process's environment, and capture its output."""
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
    ):
        streams = [each.fileno() for each in (nothing, out, err)]
        status = ask(f"{_folder()}/socket", arguments, folder, streams, timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            arguments, status, out.read().decode(), err.read().decode()
        )


def programs() -> str:
    """Return a PATH whose `swe-rollout` starts like that, for shells with this environment."""
    return f"{_folder()}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def ask(
    address: str, arguments: list[str], folder: Path, streams: list[int], timeout: float | None
) -> int:
    """Let the server at the address run the command; its exit code, negative for a signal."""
    request = {"arguments": arguments, "folder": str(folder), "environment": {**os.environ}}
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(timeout)
        asked.connect(address)
        socket.send_fds(asked, [b"streams"], streams)
        asked.sendall(json.dumps(request).encode() + b"\n")
        return int(asked.makefile("rb").readline())


def _folder() -> str:
    """Return the folder of the server that imported everything under this environment."""
    names = [name for name in sorted(os.environ) if name.startswith(READ_BY_LIBRARIES)]
    variables = tuple((name, os.environ[name]) for name in names)
    if variables not in _SERVERS:
        if len(_SERVERS) == 2:  # the first one and another: each holds 150 MB
            _SERVERS.popitem()[1][1].close()
        own = _RUNNING.enter_context(ExitStack())
        _SERVERS[variables] = _started(own), own
    return _SERVERS[variables][0]


def _started(own: ExitStack) -> str:
    folder = own.enter_context(tempfile.TemporaryDirectory(prefix="swe-rollout-warm-"))
    address, program = f"{folder}/socket", Path(folder, "swe-rollout")
    ask_it = shlex.join([sys.executable, "-IS", __file__, "ask", address])
    program.write_text(f'#!/bin/sh\nexec {ask_it} "$@"\n')
    program.chmod(0o755)
    command = [sys.executable, "-P", __file__, "serve", address]
    server = own.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    )
    own.callback(server.kill)
    assert server.stdout is not None
    server.stdout.readline()  # it listens
    return folder


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


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(sys.argv[2], sys.argv[3:], Path.cwd(), [0, 1, 2], None) % 256)
    if serve(sys.argv[2]):
        if sys.argv[1] == "-c":
            exec(sys.argv[2], {"__name__": "__main__"})  # noqa: S102 - our own pages
        else:
            from swe_rollout.cli.main import main

            main()
