"""Make a task's repository, whose one commit has the same id everywhere, and its diffs.

Git runs without configuration and hooks, and with a fixed clock. Used by `release_pairs`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from swe_rollout.errors import PrerequisiteError

_WHO = "swe-rollout"
_WHEN = "2000-01-01T00:00:00+0000"
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": _WHO,
    "GIT_AUTHOR_EMAIL": "swe-rollout@localhost",
    "GIT_AUTHOR_DATE": _WHEN,
    "GIT_COMMITTER_NAME": _WHO,
    "GIT_COMMITTER_EMAIL": "swe-rollout@localhost",
    "GIT_COMMITTER_DATE": _WHEN,
    "LC_ALL": "C",
}


def make_repository(folder: Path) -> str:
    """Commit all files in `folder` as the only commit of the branch `main`; return its id."""
    _git(folder, "init", "--quiet", "--template=", "--object-format=sha1", "-b", "main")
    _git(folder, "config", "core.logAllRefUpdates", "false")
    # A source distribution may contain files that its own .gitignore names.
    _git(folder, "add", "--all", "--force")
    _git(folder, "commit", "--quiet", "--no-verify", "-m", "base")
    # Sandboxes copy the folder, and a pack has far fewer files than loose objects.
    _git(folder, "-c", "pack.threads=1", "repack", "-a", "-d", "--quiet")
    return _git(folder, "rev-parse", "HEAD").strip()


def diff(repository: Path, new: Path, folders: Sequence[str], *, scratch: Path) -> str:
    """Return the git diff that turns `folders` of `repository` into those of the tree `new`.

    It is made in a copy below `scratch`, so nothing of `new` ever enters the repository's objects.
    """
    copy = scratch / "diff"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(repository, copy, symlinks=True)
    for folder in folders:
        shutil.rmtree(copy / folder, ignore_errors=True)
        if (new / folder).is_dir():
            shutil.copytree(new / folder, copy / folder, symlinks=True)
    _git(copy, "add", "--all", "--force")
    return _git(
        copy, "diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff",
        "--no-textconv", "--no-renames", "--diff-algorithm=myers", "HEAD", "--", *folders,
    )  # fmt: skip


def _git(folder: Path, *arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | _ENVIRONMENT
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True
        )
    except FileNotFoundError as error:
        raise PrerequisiteError(
            "git was not found", why="it creates the repositories of tasks", fix="install git"
        ) from error
    except subprocess.CalledProcessError as error:
        raise PrerequisiteError(
            f"git {arguments[0]} failed in {folder}",
            why=error.stderr.decode(errors="replace").strip()[-400:],
            fix="git 2.29 or newer is needed (`git --version`), and room on the disk",
        ) from error
    return done.stdout.decode()
