"""Run the installed command as a user does, and write job files for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e import warm

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "swe_rollout"]


@dataclass(frozen=True)
class Job:
    """A job file and the store of its trajectories."""

    path: Path
    store: str
    name: str = "job"

    @property
    def uri(self) -> str:
        """The job's address."""
        return f"{self.store}/{self.name}"

    @property
    def folder(self) -> Path:
        """The job's folder, in a store on disk."""
        return Path(self.uri.removeprefix("file://"))


def swe_rollout(
    *arguments: str, check: bool = True, timeout: float = 280
) -> subprocess.CompletedProcess[str]:
    """Run the command and capture its output as text."""
    done = warm.run([*arguments], folder=ROOT, timeout=timeout)
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@contextmanager
def started(
    command: Sequence[str], *, stdout: int = subprocess.DEVNULL, stderr: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and kill it at the end of the block, also of a test that fails."""
    with subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def scripted_server(*arguments: str) -> Iterator[str]:
    """Serve the scripted policy over sqlparse, as SGLang would; the server's address."""
    served = [*COMMAND, "engine", "serve-scripted", "--include", "sqlparse*", *arguments]
    with started(served, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()


def printed_json(done: subprocess.CompletedProcess[str]) -> Any:
    """Parse the one JSON object that a command printed."""
    return json.loads(done.stdout)


def job_writer(folder: Path, *, store: str) -> Callable[..., Job]:
    """Return a function that writes a job over release pairs with the scripted policy.

    Its keywords go into the spec.
    """

    def write(
        *,
        scenarios: Sequence[str],
        names: Sequence[str] = ("sqlparse",),
        **spec: object,
    ) -> Job:
        job = {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": "job"},
            "spec": {
                "dataset": {"releasePairs": {"names": list(names)}},
                "samples": len(scenarios),
                "parallelism": 2,
                "policy": {"scripted": {"scenarios": list(scenarios)}},
                "limits": {"turns": 40, "contextTokens": 131072},
                "sandbox": {"local": {}},
                "store": {"uri": store},
                **spec,
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(job, sort_keys=False))
        return Job(path, store)

    return write
