"""Bring a sandbox to where a journal ends: attach to the one that lives, or rebuild it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.errors import SandboxError, boundary
from swe_rollout.journal.base import Workplace
from swe_rollout.journal.errors import DivergedError
from swe_rollout.sandbox.base import Snapshots

if TYPE_CHECKING:
    from swe_rollout.context import Attempt, JobContext
    from swe_rollout.journal.fork_point import ForkPoint
    from swe_rollout.journal.reading import Earlier
    from swe_rollout.sandbox.base import Sandbox


async def end_orphans(attempt: Attempt, context: JobContext) -> None:
    """End what other processes left of the episode."""
    async with boundary(SandboxError, "ending sandboxes of an earlier process"):
        await context.sandboxes.delete_orphans([attempt.episode])


def as_it_was(sandbox: Sandbox, earlier: Earlier | ForkPoint) -> Snapshots:
    """Return a sandbox that can go on with a journal. Raises DivergedError for another one."""
    if not isinstance(sandbox, Snapshots) or sandbox.workdir != earlier.header.workdir:
        raise DivergedError("its sandbox can't be rebuilt here")
    return sandbox


async def rebuild(fresh: Sandbox, earlier: Earlier | ForkPoint) -> Snapshots:
    """Bring a fresh sandbox to where a journal ends. Raises SandboxError, DivergedError."""
    sandbox = as_it_was(fresh, earlier)
    async with boundary(SandboxError, "rebuilding the sandbox"):
        for delta in earlier.sandbox_deltas():
            await sandbox.apply(delta)
    return sandbox


async def begin_from(fork: ForkPoint, attempt: Attempt, context: JobContext) -> Workplace:
    """Start a sandbox with the files that the inherited turns left.

    It is not prepared again: what the preparation changed is among these. Raises SandboxError,
    DivergedError where it can't be as it was.
    """
    sandbox = await context.start_sandbox(attempt, snapshots=True)
    try:
        await rebuild(sandbox, fork)
    except BaseException:
        await sandbox.close()
        raise
    return Workplace(sandbox, fork.header.base)
