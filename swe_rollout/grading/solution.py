"""Carry out a task's own solution, and take what it changes: the reference fix of folder tasks."""

from __future__ import annotations

from swe_rollout.errors import TaskError
from swe_rollout.sandbox import folders, workspace
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.instance import FolderTask


async def solve(sandbox: Sandbox, task: FolderTask) -> Patch:
    """Return the changes of the task's solution in a fresh sandbox; empty without a solution.

    A solution that fails has changed what it has changed: the tests judge that. Raises TaskError
    when it does not end in its time.
    """
    base = await folders.prepare(sandbox, task)
    if not task.solve:
        return Patch()
    await folders.lay_out(sandbox, task.solution)
    result = await sandbox.exec(task.solve, timeout_s=task.solve_timeout_s)
    if result.timed_out:
        raise TaskError(
            "the task's solution does not end",
            why=f"it was ended after {task.solve_timeout_s:g} s",
            fix="give it more time ([solution] timeout_sec), or leave the task out",
            retryable=False,
        )
    await folders.remove(sandbox, folders.SOLUTION)
    return await workspace.diff(sandbox, base)
