"""The installed command, run as a user runs it, and a job file for it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "swe_rollout.cli.main"]


@dataclass(frozen=True)
class Job:
    """A job file in a folder of its own."""

    path: Path
    store: Path
    name: str

    @property
    def folder(self) -> Path:
        """Where the job's trajectories are."""
        return self.store / self.name

    @property
    def uri(self) -> str:
        """The job as people name it."""
        return f"file://{self.folder}"


def swe_rollout(
    *arguments: str, cwd: Path = ROOT, check: bool = True, timeout: float = 280
) -> subprocess.CompletedProcess[str]:
    """Run the command; its output as text."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON object a command printed."""
    return json.loads(done.stdout)
