"""Helm for the chart and its tests: the program on PATH, or one built from pinned sources.

`HELM_MAJOR=3` chooses another major version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.errors import Progress, ScriptError

NEWEST: Final = 4
HELMS: Final = {4: binaries.group("helm"), 3: binaries.group("helm-3")}
"""By major version: people have either."""


def find_helm(major: int = NEWEST) -> Path | None:
    """Return the program if this machine has one; nothing is built."""
    built = HELMS[major].folder / "helm"
    if built.exists():
        return built
    on_path = shutil.which("helm")
    return Path(on_path) if on_path and _is_of(on_path, major) else None


def _is_of(program: str, major: int) -> bool:
    shown = subprocess.run([program, "version", "--short"], check=False, capture_output=True)
    return shown.stdout.startswith(f"v{major}.".encode())


def main() -> int:
    """Run Helm with the command line's arguments; build it first if there is none."""
    progress = Progress()
    major = int(os.environ.get("HELM_MAJOR", NEWEST))
    try:
        helm = find_helm(major) or _build(major, progress)
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return subprocess.run([helm, *sys.argv[1:]], check=False).returncode


def _build(major: int, progress: Progress) -> Path:
    progress.say(
        f"building Helm {major} from source, once for this user: 3 minutes on two idle cores"
    )
    return binaries.ensure(HELMS[major], progress) / "helm"


if __name__ == "__main__":
    sys.exit(main())
