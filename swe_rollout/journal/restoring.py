"""Resume from a journal: decide whether an attempt may, and restore its sandbox."""

from __future__ import annotations

from contextlib import AsyncExitStack

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import SandboxError, boundary
from swe_rollout.journal.base import Workplace
from swe_rollout.journal.entries import Header
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.journal.reading import Earlier, sandbox_deltas
from swe_rollout.journal.tape import DivergedError
from swe_rollout.sandbox.base import Sandbox, Snapshots
from swe_rollout.spec.limits import Resume


def header_of(
    attempt: Attempt, context: JobContext, *, seed: str, workdir: str, base: str
) -> Header:
    """Return the header of a new attempt."""
    renderer = context.agent.renderer
    return Header(
        attempt=attempt.number,
        spec=context.spec_digest,
        extensions=tuple(file.sha256 for file in context.extensions),
        instance=attempt.instance.digest,
        policy=context.policy(attempt.episode),
        tokenizer=renderer.fingerprint if renderer else "",
        seed=seed,
        workdir=workdir,
        base=base,
        fork=context.fork.key if context.fork else "",
    )


def why_not(earlier: Earlier, attempt: Attempt, context: JobContext) -> str:
    """Describe why an attempt can't resume from a journal; empty if it can."""
    then = earlier.header
    now = header_of(attempt, context, seed=then.seed, workdir=then.workdir, base=then.base)
    changed = [
        name for name in Header.__struct_fields__ if getattr(then, name) != getattr(now, name)
    ]
    if changed:
        return f"it is of another {' and '.join(changed)}"
    if not earlier.can_be_rebuilt:
        return "its sandbox can't be rebuilt"
    return ""


def would_lack(earlier: Earlier, context: JobContext) -> str:
    """Describe why a rebuilt sandbox is not good enough to resume in; empty if it is."""
    if context.retry.resume is Resume.BEST or not earlier.lost:
        return ""
    lost = "; ".join(earlier.lost[:3])
    return f"its sandbox would lack {lost} (spec.retry.resume: best goes on without)"


async def end_orphans(attempt: Attempt, context: JobContext) -> None:
    """End the episode's sandboxes that other processes left."""
    async with boundary(SandboxError, "ending sandboxes of an earlier process"):
        await context.sandboxes.delete_orphans([attempt.episode])


def as_it_was(sandbox: Sandbox, earlier: Earlier | ForkPoint) -> Snapshots:
    """Return the sandbox if it can resume from a journal. Raises DivergedError if not."""
    if not isinstance(sandbox, Snapshots) or sandbox.workdir != earlier.header.workdir:
        raise DivergedError("its sandbox can't be rebuilt here")
    return sandbox


async def rebuild(fresh: Sandbox, earlier: Earlier | ForkPoint) -> Snapshots:
    """Restore a journal's final state in a fresh sandbox. Raises SandboxError, DivergedError."""
    sandbox = as_it_was(fresh, earlier)
    async with boundary(SandboxError, "rebuilding the sandbox"):
        for delta in sandbox_deltas(earlier.deltas):
            await sandbox.apply(delta)
    return sandbox


async def begin_from(fork: ForkPoint, attempt: Attempt, context: JobContext) -> Workplace:
    """Start a sandbox with the files that the inherited turns left.

    It is not prepared again, because these include the preparation's changes. Raises SandboxError,
    and DivergedError if the files can't be restored.
    """
    sandbox = await context.start_sandbox(attempt, snapshots=True)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(sandbox.close)
        await rebuild(sandbox, fork)
        undo.pop_all()
    return Workplace(sandbox, fork.header.base)
