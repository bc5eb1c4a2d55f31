"""The league's small tasks, each in a repository of its own: in other languages, and to guess."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel

from rollout_dev.conformance.attacks.trials import Site
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.instance import Evaluation, Expected, Instance

LANGUAGES: Final = ("javascript", "java", "go", "rust")
GUESSED: Final = ("digit", "word", "answers")
"""Tasks in Python whose tests are so weak that who guesses is often right."""
_IMAGE: Final = "league:1"
_ELSEWHERE: Final = {"go": "/opt/go", "cargo": "/opt/rust"}
"""Where a sandbox has what stands in folders of this machine that it does not show."""


class Task(BaseModel):
    """A task, as its file has it; files are texts by path."""

    program: str
    """What runs its tests, such as `node`."""
    command: str
    log_parser: str
    issue: str = "none"
    expected: tuple[str, ...]
    base: dict[str, str]
    gold: dict[str, str]
    hidden: dict[str, str]

    @property
    def found(self) -> Path | None:
        """Where the program is here, if a sandbox can run it.

        A JDK whose configuration is a link to elsewhere can't be run there.
        """
        folders = [
            Path("/usr/bin"),
            Path("/usr/local/go/bin"),
            *Path("/usr/lib/jvm").glob("*/bin"),
            *Path.home().glob(".rustup/toolchains/*/bin"),
        ]
        for path in (folder / self.program for folder in folders):
            settings = path.parent.parent / "conf/security/java.security"
            usable = settings.is_file() and not settings.is_symlink()
            if path.exists() and (usable or self.program != "javac"):
                return path
        return None


def load_task(name: str) -> Task:
    """Read a task: that of a language, or one to guess."""
    text = (files(__package__) / f"{name}.yaml").read_text(encoding="utf-8")
    return Task.model_validate(yaml.safe_load(text))


@asynccontextmanager
async def task_site(task: Task) -> AsyncIterator[Site]:
    """Open sandboxes of this machine with the task's repository."""
    if task.found is None:
        raise FileNotFoundError(task.program)
    with tempfile.TemporaryDirectory(prefix="league-") as home:
        instance = _instance(task, task.found, Path(home))
        provider = LocalProvider(LocalSandbox(images=home))
        try:
            yield Site("local", provider, instance)
        finally:
            await provider.aclose()


def _instance(task: Task, program: Path, images: Path) -> Instance:
    image = image_folder(_IMAGE, images)
    folder = image / "testbed"
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet")
    _write(folder, task.base)
    _git(folder, "commit", "--quiet", "--message=base")
    mounts = [Mount("testbed", "/testbed", writable=True)]
    if (place := _ELSEWHERE.get(task.program)) is not None:
        (image / task.program).symlink_to(program.parents[1])
        mounts.append(Mount(task.program, place, writable=False))
    save_image(LocalImage(_IMAGE, tuple(mounts), {}), image)
    return Instance(
        instance_id="league",
        problem_statement=task.issue,
        image=_IMAGE,
        base_commit=_git(folder, "rev-parse", "HEAD").strip(),
        gold_patch=_diff(folder, task.gold),
        test_patch=_diff(folder, task.hidden),
        evaluation=Evaluation(commands=(f"PATH={program.parent}:$PATH; {task.command}",)),
        log_parser=task.log_parser,
        expected=Expected(task.expected),
    )


def _diff(folder: Path, changed: Mapping[str, str]) -> str:
    """Return the diff that writes these files; leave the folder as it was."""
    _write(folder, changed)
    patch = _git(folder, "diff", "--cached", "--binary")
    _git(folder, "reset", "--quiet", "--hard")
    return patch


def _write(folder: Path, changed: Mapping[str, str]) -> None:
    for name, text in changed.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _git(folder, "add", "--all")


def _git(folder: Path, *arguments: str) -> str:
    env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout
