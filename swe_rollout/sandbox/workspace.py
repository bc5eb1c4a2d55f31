"""What an agent works on: a git repository, or folders. Prepare it, and take what has changed."""

from __future__ import annotations

from typing import TypeAlias

from swe_rollout.sandbox import folders, repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.folders import FolderState
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.instance import Instance

Base: TypeAlias = str | FolderState
"""A commit, or the files there were."""


async def prepare(sandbox: Sandbox, instance: Instance) -> Base:
    """Prepare the sandbox for an agent and return what later changes are compared with.

    Raises TaskError when the image does not fit the instance, SandboxError otherwise.
    """
    if instance.folder is None:
        await repository.hide(sandbox, instance)
        return await repository.prepare(sandbox, instance)
    return await folders.prepare(sandbox, instance.folder)


async def diff(sandbox: Sandbox, base: Base) -> Patch:
    """Return what has changed since `prepare`; first every process left running is ended.

    Raises SandboxError only when the sandbox is lost.
    """
    if isinstance(base, str):
        return await repository.diff(sandbox, base)
    return await folders.diff(sandbox, base)
