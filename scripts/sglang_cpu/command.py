"""`scripts/sglang-cpu`: prepare, start and stop an unmodified SGLang server without a GPU.

    setup    the server's own environment and the tiny model, in `.sglang/` (5 GB, minutes)
    up       start on a free loopback port, wait until it is ready, print its address
    down     stop it and everything it started
    status   its address, or exit status 1
    lock     resolve `requirements/sglang-cpu.txt` anew

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sglang_cpu import server

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".sglang"
VENV = STATE / "venv"
MODEL = STATE / "model"
LOCK = ROOT / "requirements" / "sglang-cpu.txt"
TOKENIZER = ROOT / "swe_rollout" / "testing" / "tokenizer"
HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run one subcommand; the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/sglang-cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS)
    command = COMMANDS[parser.parse_args(arguments).command]
    try:
        return command()
    except server.ServerError as error:
        print(f"sglang-cpu: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"sglang-cpu: {error.cmd[0]} failed ({error.returncode})", file=sys.stderr)
        return 1


def _setup() -> int:
    stamp = STATE / "installed.txt"
    lock = LOCK.read_text()
    if not stamp.exists() or stamp.read_text() != lock:
        uv = _uv()
        print("installing SGLang for the CPU (5 GB)", file=sys.stderr)
        subprocess.run([uv, "venv", "--clear", "--python", "3.11", VENV], check=True)
        # The lock is complete; what it leaves out (GPU kernels) is left out on purpose.
        install = [uv, "pip", "install", "--no-deps", "--require-hashes", "--python", str(VENV)]
        subprocess.run([*install, "-r", str(LOCK)], check=True)
        stamp.write_text(lock)
    recipe = "".join(
        file.read_text() for file in (HERE / "tiny_model.py", *sorted(TOKENIZER.iterdir()))
    )
    made = STATE / "model.txt"
    if not made.exists() or made.read_text() != recipe:
        shutil.rmtree(MODEL, ignore_errors=True)
        subprocess.run(
            [VENV / "bin" / "python", HERE / "tiny_model.py", TOKENIZER, MODEL],
            check=True,
            env=_environment(),
        )
        made.write_text(recipe)
    return 0


def _up() -> int:
    if (url := server.running(STATE)) is not None:
        print(url)
        return 0
    if not (STATE / "installed.txt").exists():
        raise server.ServerError("there is no SGLang here: run `scripts/sglang-cpu setup` first")
    _setup()
    command = [str(VENV / "bin" / "python"), str(HERE / "launch.py"), "--model-path", str(MODEL)]
    options = (
        "--host 127.0.0.1 --device cpu --dtype float32 --attention-backend torch_native "
        "--max-total-tokens 65536 --max-running-requests 32 --log-level warning"
    )
    print(server.start([*command, *options.split()], state=STATE, env=_environment()))
    return 0


def _down() -> int:
    server.stop(STATE)
    return 0


def _status() -> int:
    url = server.running(STATE)
    print(url or "not running")
    return 0 if url else 1


def _lock() -> int:
    """Two resolutions in one file: everything, then what is taken without its dependencies."""
    parts = ["# Compiled by `scripts/sglang-cpu lock`. Complete: it is installed with --no-deps.\n"]
    resolve = [_uv(), "pip", "compile", "--python-version", "3.11", "--generate-hashes"]
    resolve += ["--no-header", "--no-annotate", "--quiet", "--constraint", str(LOCK)]
    for options in (["requirements.in"], ["no-deps.in", "--no-deps"]):
        done = subprocess.run(
            [*resolve, *options], check=True, stdout=subprocess.PIPE, text=True, cwd=HERE
        )
        parts.append(done.stdout)
    LOCK.write_text("".join(parts))
    return 0


def _uv() -> str:
    own = (ROOT / folder / "bin" / "uv" for folder in (".uv", ".venv"))
    found = next((str(path) for path in own if path.exists()), None) or shutil.which("uv")
    if found is None:
        raise server.ServerError("uv is needed: pip install uv")
    return found


def _environment() -> dict[str, str]:
    """No hub, no GPU; one thread for each operator, as more spin against each other (10 times)."""
    own = {
        "PYTHONPATH": str(HERE / "stand_in"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    return {**os.environ, **own}


COMMANDS = {"setup": _setup, "up": _up, "down": _down, "status": _status, "lock": _lock}
