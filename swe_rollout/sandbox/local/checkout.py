"""A local image made of a checked-out repository and a Python environment.

It replaces a task's own image where none exists. Sandboxes see a copy of the repository where the
task expects it, and also at its path on this machine, which editable installs name. They see the
environment at its own path, and a `conda activate` that selects it. Neither original is changed:
the repository is copied once, and what a sandbox writes stays in the sandbox.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.local.environment import Environment
from swe_rollout.sandbox.local.images import PATH, LocalImage, Mount
from swe_rollout.sandbox.local.machine import interpreter_prefix

CONDA: Final = "/opt/miniconda3"
"""Where SWE-bench's scripts look for conda."""
ACTIVATE: Final = f"{CONDA}/bin/activate"
_TREE: Final = "tree"
_TOOLS: Final = "conda"
_EMPTY: Final = "empty"
_PROGRAMS: Final = {"activate.sh": "bin/activate", "tox.sh": "programs/tox"}
_GIT: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "image",
    "GIT_AUTHOR_EMAIL": "image@localhost",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "image",
    "GIT_COMMITTER_EMAIL": "image@localhost",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_ANY_COMMIT: Final = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
"""Serves any commit, even one that no branch reaches, from a repository of any owner."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A repository's working folder, and the Python environment in which its tests run."""

    folder: Path
    environment: Environment
    base_commit: str | None = None
    """The commit that the task starts from; None for the one that is checked out."""
    on_note: Callable[[str], None] = lambda _: None
    """Called with notes about the repository for the user."""

    def write(self, image: Path) -> None:
        """Write the image's files into an empty folder; blocks.

        Raises PrerequisiteError when the folder is not a working folder or can't be read.
        """
        if not self.folder.is_dir():
            raise PrerequisiteError(
                f"there is no folder {self.folder}", fix="name the checked-out repository"
            )
        if not self.is_installed:
            self.on_note(
                f"{self.environment.prefix} has no editable install of {self.folder}: sandboxes "
                "find the package by PYTHONPATH"
            )
        tree = image / _TREE
        _copy(self.folder, tree, leaving_out=(self.folder / ".git", self.environment.prefix))
        self._write_history(tree)
        (image / _EMPTY).mkdir()
        for name, place in _PROGRAMS.items():
            path = image / _TOOLS / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((files("swe_rollout.sandbox.local") / "scripts" / name).read_bytes())
            path.chmod(0o755)

    def image(self, name: str, workdir: str) -> LocalImage:
        """Return the image as the task names it, with its repository at `workdir`."""
        mounts = [Mount(_TREE, workdir, writable=True), Mount(_TOOLS, CONDA, writable=False)]
        mounts += [Mount(_TREE, path, writable=True) for path in _names(self.folder)]
        mounts += self._environment()
        version = ".".join(map(str, self.environment.version))
        own = self.environment.executable.parent
        kind = "VIRTUAL_ENV" if self.environment.is_virtual else "CONDA_PREFIX"
        env = {
            "PATH": f"{CONDA}/programs:{own}:{PATH}",
            kind: str(self.environment.prefix),
            "SWE_ROLLOUT_ACTIVATE": ACTIVATE,
            "SWE_ROLLOUT_ENVIRONMENT": str(own),
            "SWE_ROLLOUT_PYTHON": version,
            # Without a network, what pip could fetch is not worth waiting for.
            "PIP_RETRIES": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if not self.is_installed:
            env["PYTHONPATH"] = ":".join(
                [f"{workdir}/src"] * (self.folder / "src").is_dir() + [workdir]
            )
        return LocalImage(name, tuple(mounts), env)

    @property
    def is_installed(self) -> bool:
        """Return whether the environment imports the package from the repository's folder."""
        own = {Path(name) for name in _names(self.folder)}
        found = (*self.environment.sources, *self.environment.path)
        return any(
            folder in (source, *source.parents)
            for source in found
            if "site-packages" not in source.parts  # an environment inside the folder
            for folder in own
        )

    def _environment(self) -> Iterator[Mount]:
        one = self.environment
        prefixes = (
            [one.prefix]
            if one.prefix != Path("/usr")
            else [path for path in one.path if path.name in ("site-packages", "dist-packages")]
        )
        for prefix in prefixes:
            for path in _names(prefix):
                if prefix.is_dir():
                    yield Mount(str(prefix.resolve()), path, writable=True)
        if one.is_virtual:
            yield from self._base()

    def _base(self) -> Iterator[Mount]:
        """Show the base installation of a virtual environment, without its packages."""
        one = self.environment
        real = one.executable.resolve().parent.parent
        for prefix in dict.fromkeys((one.base, one.base.resolve(), real)):
            if prefix in (Path("/usr"), Path("/"), interpreter_prefix()):
                continue  # sandboxes see these anyway
            yield Mount(str(prefix.resolve()), str(prefix), writable=False)
            packages = Path("lib", f"python{one.version[0]}.{one.version[1]}", "site-packages")
            if (prefix / packages).is_dir() and prefix / packages not in one.path:
                yield Mount(_EMPTY, str(prefix / packages), writable=False)

    def _write_history(self, tree: Path) -> None:
        """Turn the copy into a repository with only the base commit and the checked-out one."""
        _git(tree, "init", "--quiet", "--template=", "-b", "main")
        head = head_commit(self.folder)
        top = _try_git(self.folder, "rev-parse", "--show-prefix")
        if head is None or top:
            self.on_note(f"{self.folder} has no git history: its files are taken as the base")
            _git(tree, "add", "--all")
            _git(tree, "commit", "--quiet", "--no-verify", "--allow-empty", "-m", "base")
            return
        base = self.base_commit and _try_git(
            self.folder, "rev-parse", "--verify", "--quiet", f"{self.base_commit}^{{commit}}"
        )
        source = self.folder.resolve().as_uri()
        fetch = ("fetch", "--quiet", "--no-tags", "--upload-pack", _ANY_COMMIT)
        _git(tree, *fetch, "--depth=2", source, head)
        if base or not self.base_commit:
            if base and base != head:
                _git(tree, *fetch, "--depth=1", source, base)
                self.on_note(f"{self.folder} is at {head[:12]}; its task starts from {base[:12]}")
        else:
            head = _git(tree, "commit-tree", f"{head}^{{tree}}", "-m", "base")
            self.on_note(
                f"{self.folder} has no commit {self.base_commit[:12]}: what is checked out is "
                "taken as the base"
            )
        _git(tree, "update-ref", "refs/heads/main", head)
        _git(tree, "reset", "--quiet", "--mixed")
        (tree / ".git" / "FETCH_HEAD").unlink(missing_ok=True)
        if changed := _git(tree, "status", "--porcelain", "--ignore-submodules=all").splitlines():
            shown = ", ".join(line[3:] for line in changed[:3])
            more = f" and {len(changed) - 3} more" if changed[3:] else ""
            self.on_note(f"uncommitted changes belong to the base: {shown}{more}")


def head_commit(folder: Path) -> str | None:
    """Return the commit that is checked out in a folder; None if it is not a git repository."""
    return _try_git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def _names(folder: Path) -> tuple[str, ...]:
    """Return the paths by which files may refer to a folder: as given, and with links resolved."""
    return tuple(dict.fromkeys((str(folder.absolute()), str(folder.resolve()))))


def _copy(folder: Path, target: Path, *, leaving_out: Sequence[Path]) -> None:
    """Copy files, folders and links, keeping their times."""
    gone = {path.absolute() for path in leaving_out} | {path.resolve() for path in leaving_out}

    def ignored(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if _is_left_out(Path(parent, name), gone)]

    try:
        shutil.copytree(folder, target, symlinks=True, ignore=ignored)
    except (OSError, shutil.Error) as error:
        raise PrerequisiteError(
            f"{folder} can't be copied",
            why=str(error)[-500:],
            fix="look at the files' permissions, and at the disk of the cache folder "
            "(set XDG_CACHE_HOME to move it)",
        ) from error


def _is_left_out(path: Path, gone: set[Path]) -> bool:
    if path.absolute() in gone:
        return True
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _try_git(folder: Path, *arguments: str) -> str | None:
    try:
        return _git(folder, *arguments)
    except PrerequisiteError:
        return None


def _git(folder: Path, *arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | _GIT
    command = ["git", "-c", "safe.directory=*", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise PrerequisiteError("git was not found", fix="install git") from error
    except subprocess.CalledProcessError as error:
        raise PrerequisiteError(
            f"git {arguments[0]} failed for {folder}",
            why=error.stderr.decode(errors="replace").strip()[-400:],
            fix="check the repository with `git fsck`, or take a fresh clone",
        ) from error
    return done.stdout.decode(errors="replace").rstrip("\n")
