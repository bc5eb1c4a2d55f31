"""An agent's workspace, a git repository or folders: prepare it, and collect what has changed."""

from __future__ import annotations

from typing import TypeAlias

from swe_rollout.sandbox import folders, repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.folders import FolderState
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.instance import Instance

Base: TypeAlias = str | FolderState
"""A commit, or the state of the files at the start."""


async def prepare(sandbox: Sandbox, instance: Instance) -> Base:
    """Prepare the sandbox for an agent; return the base that later changes are compared with."""
    if instance.folder is None:
        await repository.hide(sandbox, instance)
        return await repository.prepare(sandbox, instance)
    return await folders.prepare(sandbox, instance.folder)


async def diff(sandbox: Sandbox, base: Base) -> Patch:
    """Return what has changed since `prepare`, after ending every remaining process.

    Raises SandboxError only when the sandbox is lost.
    """
    if isinstance(base, str):
        return await repository.diff(sandbox, base)
    return await folders.diff(sandbox, base)
