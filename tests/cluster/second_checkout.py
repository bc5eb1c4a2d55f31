"""A second checkout on the same machine: folders of its own, the first one's environment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from checkout import ROOT


def copy_checkout(root: Path) -> None:
    """Copy what scripts need, and link the environment."""
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("scripts", "swe_rollout", "sandbox_images", "manifests"):
        shutil.copytree(ROOT / folder, root / folder, symlinks=True)
    (root / ".venv").symlink_to(ROOT / ".venv")


def script_environment(root: Path) -> dict[str, str]:
    """Return variables that import a checkout's own code: the environment has the first one's."""
    return {**os.environ, "PYTHONPATH": f"{root / 'scripts'}:{root}"}
