"""A repository in an image, diffs of it, and a grader over it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import Verdict

EPISODE = EpisodeId("demo", "demo__calc-1", 0)


@dataclass(frozen=True, slots=True)
class Project:
    """A repository with a bug, the fix, and tests that arrive later; and a grader for it."""

    instance: Instance
    grader: Grader

    async def grade(self, patch: str) -> Verdict:
        return await self.grader.grade(self.instance, Patch(patch), episode=EPISODE)

    def changed(self, **fields: object) -> Project:
        return replace(self, instance=replace(self.instance, **fields))  # type: ignore[arg-type]


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    env = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    author = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    command = ["git", *author, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=env, input=stdin.encode(), check=True, capture_output=True
    )
    return done.stdout.decode()


def diff(folder: Path, **files: str | None) -> str:
    """The diff that writes these files (none: deletes), with the folder left as it was."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
    git(folder, "add", "--all")
    patch = git(folder, "diff", "--cached", "--binary")
    git(folder, "reset", "--quiet", "--hard")
    return patch


def repository(images: Path, files: dict[str, str]) -> Path:
    """Make the image `test/calc:1` with these files in its repository, and return that."""
    image = image_folder("test/calc:1", images)
    folder = image / "testbed"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=base")
    save_image(LocalImage("test/calc:1", (Mount("testbed", "/testbed", writable=True),), {}), image)
    return folder
