"""What an episode does otherwise where it has a journal.

`episode` tells the story; this is what differs in it where an attempt goes on from a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from swe_rollout.agent.context import AgentContext
from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import SandboxError, boundary
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
    """What its work is compared with at the end."""


class Journal(Protocol):
    """What an episode does otherwise where it has a journal."""

    @property
    def resumption(self) -> Resumption | None:
        """What the record says of earlier lives; none: there was none."""
        ...

    async def begin(self, attempt: Attempt, context: JobContext) -> Workplace:
        """Start the agent's sandbox, as prepared or as it was when the journal ends.

        Raises SandboxError, TaskError; DivergedError where it can't be as it was.
        """
        ...

    def agent_context(
        self,
        attempt: Attempt,
        context: JobContext,
        place: Workplace,
        *,
        on_turn: Callable[[Turn], None],
    ) -> AgentContext:
        """Return the context of the attempt's agent."""
        ...

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Run the agent program inside the block."""
        ...

    async def finish(self, place: Workplace) -> Patch:
        """Return the agent's work. Raises DivergedError where the program was another one."""
        ...

    async def salvage(self, attempt: Attempt, context: JobContext) -> Patch:
        """Return the work of an agent that ended its sandbox, which is closed: what is durable.

        Raises SandboxError where a sandbox that would show it can't be had, StoreError.
        """
        ...


async def start(attempt: Attempt, context: JobContext, *, snapshots: bool = False) -> Workplace:
    """Start a sandbox and prepare it for the agent. Raises SandboxError, TaskError."""
    sandbox = await context.start_sandbox(attempt, snapshots=snapshots)
    try:
        async with boundary(SandboxError, "preparing the sandbox"):
            return Workplace(sandbox, await workspace.prepare(sandbox, attempt.instance))
    except BaseException:
        await sandbox.close()
        raise
