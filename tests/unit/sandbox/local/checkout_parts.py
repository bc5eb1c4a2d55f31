"""A repository with a history of three commits, and a small Python environment, made by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

AUTHOR = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@localhost",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
_RUNNER = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")


def git(folder: Path, *arguments: str, stdin: Path = Path(os.devnull)) -> str:
    command = ["git", "-c", "safe.directory=*", *arguments]
    with stdin.open("rb") as opened:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | AUTHOR,
            check=True,
            capture_output=True,
            stdin=opened,
        )
    return done.stdout.decode().strip()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def commit(folder: Path, **files: str) -> str:
    """Commit files, named with `__` for `/`; return the commit."""
    write(folder, {name.replace("__", "/"): text for name, text in files.items()})
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


def make_environment(folder: Path, *, editable: Path | None = None, runner: bool = True) -> Path:
    """Make a virtual environment with a copy of this one's pytest; return its Python."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120
    )
    site = next(folder.glob("lib/python3*/site-packages"))
    if runner:
        own = Path(sysconfig.get_path("purelib"))
        for name in _RUNNER:
            parts = [own / name, *own.glob(f"{name}-*.dist-info")]
            subprocess.run(["cp", "-r", *map(str, parts), str(site)], check=True)
        script = folder / "bin" / "pytest"
        script.write_text(
            f"#!{folder}/bin/python\nimport sys\nfrom pytest import console_main\n"
            "sys.exit(console_main())\n"
        )
        script.chmod(0o755)
    if editable is not None:
        (site / "__editable__.own.pth").write_text(f"{editable}\n")
    return folder / "bin" / "python"
