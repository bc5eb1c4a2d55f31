"""The two environments and three checkpoints of the CPU server, each made once and kept.

A stamp next to each one records its inputs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.sglang_cpu.server import require_disk

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
STATE = ROOT / ".sglang"
VENV = STATE / "venv"
ROUTER = STATE / "router"
"""This is separate because the router imports SGLang if it is installed."""
TORCH = STATE / "torch"
"""The server's PyTorch alone, as a `PYTHONPATH` for this package's own interpreter."""
MODEL = STATE / "model"
UPDATE = STATE / "model-update"
"""A checkpoint of the same shape with other weights, for updating a server."""
LONG = STATE / "model-long"
"""A checkpoint with a longer context."""
_VENV_GB, _ROUTER_GB = 6.0, 0.2
_INSTALL_S, _TRAIN_S = 3600.0, 1200.0
"""Time limits; on two free cores training takes two minutes."""
_TORCH_PARTS = ("torch", "torchgen", "functorch", "sympy", "mpmath", "networkx")
_LOCK = ROOT / "requirements" / "sglang-cpu.txt"
_ROUTER_LOCK = ROOT / "requirements" / "sglang-router.txt"
_TOKENIZER = ROOT / "swe_rollout" / "testing" / "tokenizer"


def install() -> None:
    """Install the server and the router, unless they match their locks."""
    _install(VENV, _LOCK, STATE / "installed.txt", gigabytes=_VENV_GB)
    _install(ROUTER, _ROUTER_LOCK, STATE / "router.txt", gigabytes=_ROUTER_GB)
    link_torch()


def link_torch() -> None:
    """Show the server's PyTorch to interpreters that have everything else of their own.

    This is for tests of the engine that runs a model in the worker's process.
    """
    require()
    shutil.rmtree(TORCH, ignore_errors=True)
    TORCH.mkdir()
    (packages,) = VENV.glob("lib/python3.*/site-packages")
    for part in _TORCH_PARTS:
        for found in (packages / part, *packages.glob(f"{part}-*.dist-info")):
            if found.exists():
                (TORCH / found.name).symlink_to(found)


def require() -> None:
    """Raise ScriptError if the server or the router is not installed."""
    if not (STATE / "installed.txt").exists() or not (STATE / "router.txt").exists():
        raise ScriptError("there is no SGLang here: run `scripts/sglang-cpu setup` first")


def make_models() -> None:
    """Train the model and change two copies of it, unless all match their recipes."""
    require()
    recipe = _texts(HERE / "tiny_model.py", *sorted(_TOKENIZER.iterdir()))
    _make(MODEL, recipe, [HERE / "tiny_model.py", _TOKENIZER, MODEL])
    for program, changed in ((HERE / "tiny_update.py", UPDATE), (HERE / "tiny_long.py", LONG)):
        _make(changed, recipe + _texts(program), [program, MODEL, changed])


def variables() -> dict[str, str]:
    """Return variables for no hub, no GPU, one thread per operator (more are 10 times slower)."""
    own = {
        "PYTHONPATH": str(HERE / "stand_in"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    return {**os.environ, **own}


def lock() -> None:
    """Resolve both locks; the server's in two parts: with dependencies, and without."""
    head = "# Compiled by `scripts/sglang-cpu lock`. Complete: it is installed with --no-deps.\n"
    parts = (["requirements.in"], ["no-deps.in", "--no-deps"])
    known = ["--constraint", str(_LOCK)]
    _LOCK.write_text(head + "".join(_compiled(*part, *known) for part in parts))
    known = ["--constraint", str(_ROUTER_LOCK)] if _ROUTER_LOCK.exists() else []
    _ROUTER_LOCK.write_text(head + _compiled("router.in", *known))


def _install(venv: Path, lock: Path, stamp: Path, *, gigabytes: float) -> None:
    wanted = lock.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    uv = _uv()
    STATE.mkdir(exist_ok=True)
    if not venv.exists():
        require_disk(STATE, gigabytes)
    print(f"installing {lock.stem} into {venv}", file=sys.stderr)
    subprocess.run([uv, "venv", "--clear", "--python", "3.11", venv], check=True)
    # The locks are complete; they leave out GPU kernels on purpose.
    install = [uv, "pip", "install", "--no-deps", "--require-hashes", "--python", str(venv)]
    subprocess.run([*install, "-r", str(lock)], check=True, timeout=_INSTALL_S)
    stamp.write_text(wanted)


def _make(folder: Path, recipe: str, command: list[Path]) -> None:
    stamp = folder.with_suffix(".txt")
    if stamp.exists() and stamp.read_text() == recipe:
        return
    shutil.rmtree(folder, ignore_errors=True)
    train = [str(VENV / "bin" / "python"), *map(str, command)]
    subprocess.run(train, check=True, env=variables(), timeout=_TRAIN_S)
    stamp.write_text(recipe)


def _texts(*files: Path) -> str:
    return "".join(file.read_text() for file in files)


def _compiled(*options: str) -> str:
    resolve = [_uv(), "pip", "compile", "--python-version", "3.11", "--generate-hashes"]
    resolve += ["--no-header", "--no-annotate", "--quiet", *options]
    done = subprocess.run(resolve, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE)
    return done.stdout


def _uv() -> str:
    own = (ROOT / folder / "bin" / "uv" for folder in (".uv", ".venv"))
    found = next((str(path) for path in own if path.exists()), None) or shutil.which("uv")
    if found is None:
        raise ScriptError("uv is missing: pip install uv")
    return found
