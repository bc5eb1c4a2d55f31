"""Helm for the chart and its tests: the program on PATH, or one built from pinned sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.errors import Progress, ScriptError

VERSION = "v4.3.1"
HELM = binaries.Group(
    "helm",
    binaries.Module("helm.sh/helm/v4", VERSION, "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g="),
    (("helm", "./cmd/helm"),),
    (("helm.sh/helm/v4/internal/version.version", VERSION),),
)


def find_helm() -> Path | None:
    """Return the program if this machine has one; nothing is built."""
    built = HELM.folder / "helm"
    if built.exists():
        return built
    on_path = shutil.which("helm")
    return None if on_path is None else Path(on_path)


def main() -> int:
    """Run Helm with the command line's arguments; build it first if there is none."""
    progress = Progress()
    try:
        helm = find_helm() or _build(progress)
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return subprocess.run([helm, *sys.argv[1:]], check=False).returncode


def _build(progress: Progress) -> Path:
    progress.say("building Helm from source, once for this user: 3 minutes on two idle cores")
    return binaries.ensure(HELM, progress) / "helm"


if __name__ == "__main__":
    sys.exit(main())
