"""Git in a sandbox: prepare a base commit that reveals no later history, and diff against it.

Used by the episode (before and after the agent) and by the grader. Nothing an agent left in its
sandbox is trusted: the diff is made with a git directory of our own that only borrows objects.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from swe_rollout.errors import SandboxError, TaskError
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.sandbox.patch_text import binary_attributes, is_utf8
from swe_rollout.sandbox.script import read_script
from swe_rollout.types.instance import Instance

MAX_PATCH_BYTES = 16 << 20
_MAX_FILE_BYTES = 64 << 20
"""Size of the largest file that a patch may add or change."""
STEP_S = 600.0
"""Time limit of a git step; repacking a large repository takes minutes."""

_CHANGED = re.compile(r"^--- a/([^\t\n]+)", re.MULTILINE)
"""A file that a diff changes and does not create."""
_MOST_NAMES = 50
_IN_ROOT = """
count=$1; shift
missing=$count
while [ "$count" -gt 0 ]; do
  [ ! -e "$1" ] || missing=0
  shift; count=$((count - 1))
done
[ "$missing" = 0 ] || { echo 'none of the files that it changes is here' >&2; exit 1; }
cd "$(git rev-parse --show-toplevel)" && exec "$@"
"""
"""Runs a command at the repository's root, if a file that the fix changes is in this folder."""
# No --3way: it would leave the fix's files in the object database, where a policy could read them.
_TRIALS = (
    ("git", "apply", "--check", "--whitespace=nowarn", "-"),
    ("patch", "--dry-run", "--batch", "--forward", "--fuzz=5", "-p1"),
)
_BAD_BASE_PATCH = 65
_REFUSALS = {
    61: ("the image has no git", "use an image with git"),
    62: ("its working folder is no git repository", "name the repository as the row's workdir"),
    63: ("the base commit is not in the repository", "use the image that belongs to this row"),
    64: ("commits after the base stay reachable", "rebuild the image from the base commit alone"),
}


@dataclass(frozen=True, slots=True)
class Patch:
    """The diff of an episode, or why none could be made.

    A missing diff is caused by the policy (it deleted `.git`, for example): data, not a failure.
    """

    text: str = ""
    problem: str = ""
    """Why there is no diff; empty when there is one."""

    @property
    def usable(self) -> bool:
        """Whether `text` is the whole diff."""
        return not self.problem


async def hide(sandbox: Sandbox, instance: Instance) -> None:
    """Remove the files that an agent must not see, before `prepare`. Raises SandboxError."""
    if not instance.hidden_paths:
        return
    # Remove a symbolic link itself, not its target.
    command = ["rm", "-rf", "--", *instance.hidden_paths]
    result = await sandbox.exec(command, timeout_s=STEP_S)
    if not result.ok:
        raise SandboxError("the task's hidden files can't be removed", why=failure_text(result))


async def prepare(sandbox: Sandbox, instance: Instance) -> str:
    """Check out the base commit, remove all newer history, and return the id of the commit to use.

    Where the image's working tree differs from the base, a commit with the difference is added on
    top, so that a later diff holds only the policy's changes. Raises TaskError when the image does
    not fit the instance, SandboxError when git fails for another reason.
    """
    base_commit = instance.base_commit or ""
    if instance.base_patch:
        await _make_base(sandbox, instance)
        base_commit = ""
    result = await sandbox.exec(read_script("prepare"), env={"BASE": base_commit}, timeout_s=STEP_S)
    if result.exit_code in _REFUSALS and not result.timed_out:
        why, fix = _REFUSALS[result.exit_code]
        raise TaskError(
            f"{instance.instance_id} can't be prepared", why=why, fix=fix, retryable=False
        )
    base = result.stdout.decode(errors="replace").strip()
    if not result.ok or not base.isalnum():
        raise SandboxError("preparing the repository failed", why=failure_text(result))
    return base


async def require_fix(sandbox: Sandbox, instance: Instance) -> None:
    """Raise TaskError if the reference fix does not apply in a sandbox that no policy has been in.

    Every policy would earn 0 there. The fix goes over stdin to programs that leave nothing behind.
    """
    fix = instance.gold_patch
    if instance.folder is not None or not fix.strip():
        return
    names = _CHANGED.findall(fix)[:_MOST_NAMES]
    why = ""
    for command in _TRIALS:
        tried = await sandbox.exec(
            ["sh", "-c", _IN_ROOT, "sh", f"{len(names)}", *names, *command],
            stdin=fix.encode(errors="replace"),
            timeout_s=STEP_S,
        )
        if tried.ok or tried.timed_out:
            return
        why = why or failure_text(tried)
    raise TaskError(
        f"{instance.instance_id} can't be played",
        why=f"its reference fix does not apply to the repository in the sandbox: {why}",
        fix="use the image or checkout at the task's base commit, and name its folder: the row's "
        "`workdir`, or sandbox.local.checkout.workdir",
        retryable=False,
    )


async def _make_base(sandbox: Sandbox, instance: Instance) -> None:
    """Apply the base patch, and commit the resulting files without any history."""
    result = await sandbox.exec(
        read_script("make_base"),
        env={"BASE": instance.base_commit or ""},
        stdin=instance.base_patch.encode(errors="replace"),
        timeout_s=STEP_S,
    )
    if result.exit_code == _BAD_BASE_PATCH and not result.timed_out:
        raise TaskError(
            f"{instance.instance_id} can't be prepared",
            why=f"its base patch does not apply: {failure_text(result)}",
            fix="use the image that belongs to this row",
            retryable=False,
        )
    if not result.ok:
        raise SandboxError("making the base commit failed", why=failure_text(result))


async def diff(sandbox: Sandbox, base: str) -> Patch:
    """Diff the working tree against `base`: commits, changes, new files that are not ignored.

    Includes binary files, modes and renames. The text is always UTF-8, without loss: files in
    another encoding become binary patches. Every process left by the agent is ended first, so that
    no files change meanwhile. Raises SandboxError only when the sandbox is lost.
    """
    await sandbox.end_processes()
    result = await _diff(sandbox, base, b"")
    if (problem := _problem(result)) is None and not is_utf8(result.stdout):
        attributes = await asyncio.to_thread(binary_attributes, result.stdout)
        result = await _diff(sandbox, base, attributes)
        problem = _problem(result)
    if problem is None and not is_utf8(result.stdout):
        problem = "the diff is not text"
    return Patch(problem=problem) if problem else Patch(result.stdout.decode())


async def _diff(sandbox: Sandbox, base: str, attributes: bytes) -> ExecResult:
    return await sandbox.exec(
        read_script("diff"),
        env={"BASE": base, "MAX_BYTES": str(_MAX_FILE_BYTES)},
        stdin=attributes,
        timeout_s=STEP_S,
        max_output=MAX_PATCH_BYTES,
    )


def _problem(result: ExecResult) -> str | None:
    if result.stdout_bytes > MAX_PATCH_BYTES:
        return f"the diff is larger than {MAX_PATCH_BYTES >> 20} MiB"
    return None if result.ok else failure_text(result)


def failure_text(result: ExecResult) -> str:
    """Describe a failed step: its exit code and the end of its error output."""
    output = (result.stderr.strip() or result.stdout.strip()).decode(errors="replace")
    reason = "out of time" if result.timed_out else f"exit code {result.exit_code}"
    return f"{reason}: {output[-500:]}" if output else reason
