"""Journal: the steps of an episode that differ when an attempt resumes from a journal.

`episode` calls them in order. A plain `Journal` plays an attempt without recording it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass

from swe_rollout.agent.context import AgentContext
from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import SandboxError, boundary
from swe_rollout.journal.wrappers import Taped, taped_context
from swe_rollout.sandbox import workspace
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.repository import Patch
from swe_rollout.sandbox.workspace import Base
from swe_rollout.types.episode import Resumption
from swe_rollout.types.turn import Turn


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where the agent of an attempt works."""

    sandbox: Sandbox
    base: Base
    """The state with which the agent's work is compared at the end."""


class Journal:
    """Plays an attempt from its task, recording nothing before it is committed."""

    @property
    def resumption(self) -> Resumption | None:
        """The record's account of earlier lives; None if there were none."""
        return None

    async def begin(self, attempt: Attempt, context: JobContext) -> Workplace:
        """Start the agent's sandbox, freshly prepared or in the state where the journal ends.

        Raises SandboxError, TaskError, and DivergedError if that state can't be restored.
        """
        return await start(attempt, context)

    def agent_context(
        self,
        attempt: Attempt,
        context: JobContext,
        place: Workplace,
        *,
        on_turn: Callable[[Turn], None],
    ) -> AgentContext:
        """Return the context of the attempt's agent."""
        taped = self._taped()
        if taped is None:
            return context.agent_context(attempt, place.sandbox, on_turn=on_turn)
        return taped_context(attempt, context, place.sandbox, taped, on_turn=on_turn)

    def _taped(self) -> Taped | None:
        """Return the tape that records the agent's requests, or None."""
        return None

    def playing(self) -> AbstractContextManager[None]:
        """Return the block inside which the agent program runs."""
        return nullcontext()

    async def finish(self, place: Workplace) -> Patch:
        """Return the agent's work. Raises DivergedError if the program has changed."""
        return await workspace.diff(place.sandbox, place.base)

    async def salvage(self, attempt: Attempt, context: JobContext) -> Patch:
        """Return the durable work of an agent that destroyed its sandbox, which is closed.

        Raises StoreError, and SandboxError if no sandbox can be started to recover the work.
        """
        del attempt, context
        return Patch()


async def start(attempt: Attempt, context: JobContext, *, snapshots: bool = False) -> Workplace:
    """Start a sandbox and prepare it for the agent. Raises SandboxError, TaskError."""
    sandbox = await context.start_sandbox(attempt, snapshots=snapshots)
    async with AsyncExitStack() as undo, boundary(SandboxError, "preparing the sandbox"):
        undo.push_async_callback(sandbox.close)
        base = await workspace.prepare(sandbox, attempt.instance)
        await context.try_out(sandbox, attempt.instance)
        undo.pop_all()
    return Workplace(sandbox, base)
