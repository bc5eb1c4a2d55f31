"""A run that is killed leaves its sandboxes; `doctor` finds them, and removes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.command import COMMAND, ROOT, Job
from swe_rollout.sandbox.local.images import cache_dir
from waits import block_until


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    """The environment of commands whose cache has what ours has, but no sandbox."""
    own = tmp_path / "cache" / "swe-rollout"
    own.mkdir(parents=True)
    if cache_dir().is_dir():
        for each in cache_dir().iterdir():
            if each.name != "sandboxes":
                (own / each.name).symlink_to(each)
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "KUBECONFIG": "/dev/null"}


def leftovers(env: Mapping[str, str], *options: str) -> dict[str, Any]:
    """What `doctor` says of this machine's leftovers."""
    done = subprocess.run(
        [*COMMAND, "doctor", "-o", "json", *options],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    checks = json.loads(done.stdout)["checks"]
    (found,) = (each for each in checks if each["tier"] == "local" and each["name"] == "leftovers")
    return dict(found)


def locked(sandboxes: Path) -> list[Path]:
    """The folders that a process uses."""
    return [lock.parent for lock in sandboxes.glob("*/lock")]


def test_what_a_killed_run_left_is_found_and_removed(
    job_file: Callable[..., Job], env: Mapping[str, str]
) -> None:
    """Issue 16, point 7: and what a living run uses is not."""
    sandboxes = Path(env["XDG_CACHE_HOME"]) / "swe-rollout" / "sandboxes"
    job = job_file(scenarios=["loop"] * 4, samples=4)
    command = [*COMMAND, "run", str(job.path)]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            block_until(lambda: locked(sandboxes) or running.poll() is not None, within_s=120)
            found = locked(sandboxes)
            assert found, "the run has ended"
            running.send_signal(signal.SIGSTOP)
            assert "folder" not in leftovers(env, "--clean")["text"]
            assert all(folder.is_dir() for folder in found)
        finally:
            running.kill()
    assert leftovers(env)["verdict"] == "warn"
    assert all(folder.is_dir() for folder in found), "doctor only looks unless it is told to remove"
    assert leftovers(env, "--clean")["text"].startswith("removed: ")
    assert list(sandboxes.iterdir()) == []
