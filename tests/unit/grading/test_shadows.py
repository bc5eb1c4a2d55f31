"""Modules that a patch adds, compared with what is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from unit.grading.project_parts import git, repository


def test_no_program_is_started_for_each_module(tmp_path: Path) -> None:
    """A patch with a few thousand modules took longer than its step may: it had no verdict."""
    repo = repository(tmp_path / "images", {"lib/a.txt": ""})
    started, bin_ = tmp_path / "started", tmp_path / "bin"
    bin_.mkdir()
    for name in ("cat", "find", "git", "grep", "sed", "tr"):
        program = bin_ / name
        # The machine's own installations come and go while tests run.
        does = f'exec {shutil.which(name)} "$@"' if name != "find" else f"echo {tmp_path}"
        program.write_text(f"#!/bin/sh\necho {name} >>{started}\n{does}\n")
        program.chmod(0o755)
    script = (files("swe_rollout.grading") / "scripts/shadows.sh").read_text()
    env = os.environ | {
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "BASE": git(repo, "rev-parse", "HEAD").strip(),
    }

    def programs(modules: int) -> list[str]:
        started.write_text("")
        lines = "".join(f"lib\tm{n}\t0\t0\t0\tlib/m{n}.py\n" for n in range(modules))
        subprocess.run(["sh", "-c", script], cwd=repo, env=env, input=lines.encode(), check=True)
        return sorted(started.read_text().split())

    assert programs(20) == programs(1)
