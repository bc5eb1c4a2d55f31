"""Pack the bundles of tools that a job names by their folders."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from swe_rollout.agent.tools.bundle.archive import SUFFIX, pack
from swe_rollout.errors import UsageError
from swe_rollout.launcher.uploads import LocalFile, name_files
from swe_rollout.spec.job import ExtensionFile

if TYPE_CHECKING:
    from swe_rollout.spec.agent import ToolUse
    from swe_rollout.spec.job import RolloutJob

USE: Final = "bundle"


def pack_bundles(job: RolloutJob, *, base_dir: Path) -> tuple[RolloutJob, tuple[LocalFile, ...]]:
    """Pack each folder that a tool `{use: bundle, with: {path: …}}` names, from `base_dir` on.

    Returns the job with the digests of what was packed, and the files to put into its store. A
    job that has a digest already keeps it where there is no such folder. Raises UsageError for a
    folder that is no bundle.
    """
    packed: dict[str, LocalFile] = {}
    tools = tuple(_packed(use, base_dir, packed) for use in job.spec.agent.tools)
    if not packed:
        return job, ()
    agent = job.spec.agent.model_copy(update={"tools": tools})
    named = job.model_copy(update={"spec": job.spec.model_copy(update={"agent": agent})})
    files = tuple(packed.values())
    return name_files(named, files), files


def _packed(use: ToolUse, base_dir: Path, packed: dict[str, LocalFile]) -> ToolUse:
    path = use.with_.get("path")
    if use.use != USE or not isinstance(path, str):
        return use
    folder = (base_dir / Path(path).expanduser()).resolve()
    if not folder.is_dir():
        if "sha256" in use.with_:
            return use
        raise UsageError(
            f"there is no bundle of tools at {path}",
            why=f"{folder} is no folder",
            fix=f"relative paths start at {base_dir}",
        )
    data = pack(folder)
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{folder.name}{SUFFIX}"
    if packed.get(name, LocalFile(_entry(name, sha256), data)).entry.sha256 != sha256:
        raise UsageError(
            f"two bundles of tools are named {folder.name}", fix="rename one of the folders"
        )
    packed[name] = LocalFile(_entry(name, sha256), data)
    return use.model_copy(update={"with_": {**use.with_, "sha256": sha256}})


def _entry(name: str, sha256: str) -> ExtensionFile:
    try:
        return ExtensionFile(name=name, sha256=sha256)
    except ValueError as error:
        raise UsageError(
            f"a bundle can't be named {name}", fix="name its folder with letters, digits, - and _"
        ) from error
