"""The environment of the peers: `.peers/venv`, made by `scripts/peers`.

A program that compares with peers enters it before it imports anything else. If it can't be made,
the program runs in the project's own environment, and the rows of peers say how to install them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_PEERS = ROOT / ".peers" / "venv"
HOW = "run scripts/peers, which needs a package index"
"""How to install a missing peer."""


def enter(package: str, arguments: Sequence[str]) -> None:
    """Restart as `python -m package` in the peers' environment; return if inside it, or if it does
    not exist.
    """
    # By default strands traces every turn.
    os.environ.setdefault("OTEL_SDK_DISABLED", "true")
    if Path(sys.prefix).resolve() == _PEERS.resolve():
        return
    made = subprocess.run([ROOT / "scripts" / "peers"], check=False, stdout=sys.stderr)
    # A half-made environment is not used: peers may lack their dependencies.
    if made.returncode == 0:
        python = str(_PEERS / "bin" / "python")
        os.execv(python, [python, "-P", "-m", package, *arguments])  # noqa: S606 - no shell


def is_installed(package: str) -> bool:
    """Whether a peer can be imported here."""
    return importlib.util.find_spec(package) is not None


class EpisodeDiedError(RuntimeError):
    """A peer's loop failed in a way that should never end an episode."""

    def __init__(self, generations: int, why: str) -> None:
        super().__init__(f"it failed in turn {generations}: {why}")
        self.generations = generations
        """The number of generations until then."""
