"""Prepare, start and stop an unmodified SGLang server without a GPU.

    setup    install the server and the router, and make the models, in `.sglang/` (5 GB)
    up       start on a free loopback port, wait until it is ready, print its address
    down     stop it and everything it started
    status   print its address, or exit with status 1
    kill     end it as a crash would
    again    restart it after `kill`, with the same flags at the same address
    router   start SGLang's router in front of servers: flags such as `--worker-urls`
    models   print the folders of two checkpoints: the one served, and one to update it to
    teacher  compare records with a teacher-forced recomputation; see `-- --help`
    lock     resolve the requirements again

`--state FOLDER` selects a server of its own, for tests that kill one. Flags of the server or the
teacher go after `--`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.sglang_cpu import environment, server
from rollout_dev.sglang_cpu.environment import HERE, MODEL, ROUTER, STATE, UPDATE, VENV

FLAGS = (
    "--host 127.0.0.1 --device cpu --dtype float32 --attention-backend torch_native "
    "--max-total-tokens 65536 --max-running-requests 32 --sleep-on-idle --log-level warning"
)
_MEMORY_GB = 3.0
_TEACHER_S = 1200.0
_ROUTER_FLAGS = "--host 127.0.0.1 --prometheus-host 127.0.0.1 --log-level warn"


def main(arguments: list[str]) -> int:
    """Run one subcommand; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/sglang-cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument(
        "--state", type=Path, default=STATE, help="the folder with the server's state"
    )
    # argparse would parse the words after -- itself if an option comes before it.
    own = list(takewhile(lambda argument: argument != "--", arguments))
    options, flags = parser.parse_args(own), arguments[len(own) + 1 :]
    try:
        return COMMANDS[options.command](options.state, flags)
    except ScriptError as error:
        print(f"sglang-cpu: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"sglang-cpu: {error.cmd[0]} failed ({error.returncode})", file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired as error:
        print(f"sglang-cpu: {error.cmd[0]} took over {error.timeout:g} s", file=sys.stderr)
        return 1


def _setup(_state: Path, _flags: list[str]) -> int:
    environment.install()
    environment.make_models()
    return 0


def _up(state: Path, flags: list[str]) -> int:
    if (url := server.running(state)) is not None:
        print(url)
        return 0
    environment.make_models()
    server.require_memory(_MEMORY_GB)
    command = [str(VENV / "bin" / "python"), str(HERE / "launch.py"), "--model-path", str(MODEL)]
    served = server.Server([*command, *FLAGS.split(), *flags])
    print(server.start(served, state=state, env=environment.variables()))
    return 0


def _router(state: Path, flags: list[str]) -> int:
    environment.require()
    command = [str(ROUTER / "bin" / "python"), "-m", "sglang_router.launch_router"]
    router = server.Server([*command, *_ROUTER_FLAGS.split(), *flags], ready_path="/readiness")
    print(server.start(router, state=state, env={**os.environ}))
    return 0


def _again(state: Path, _flags: list[str]) -> int:
    server.require_memory(_MEMORY_GB)
    print(server.restart(state, env=environment.variables()))
    return 0


def _kill(state: Path, _flags: list[str]) -> int:
    server.kill(state)
    return 0


def _down(state: Path, _flags: list[str]) -> int:
    server.stop(state)
    return 0


def _status(state: Path, _flags: list[str]) -> int:
    url = server.running(state)
    print(url or "not running")
    return 0 if url else 1


def _models(_state: Path, _flags: list[str]) -> int:
    environment.make_models()
    print(MODEL, UPDATE, sep="\n")
    return 0


def _teacher(_state: Path, flags: list[str]) -> int:
    environment.require()
    command = [str(VENV / "bin" / "python"), str(HERE / "teacher.py"), *flags]
    done = subprocess.run(command, check=False, env=environment.variables(), timeout=_TEACHER_S)
    return done.returncode


def _lock(_state: Path, _flags: list[str]) -> int:
    environment.lock()
    return 0


COMMANDS = {
    "setup": _setup,
    "up": _up,
    "down": _down,
    "status": _status,
    "kill": _kill,
    "again": _again,
    "router": _router,
    "models": _models,
    "teacher": _teacher,
    "lock": _lock,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
