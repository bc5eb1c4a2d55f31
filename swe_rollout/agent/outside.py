"""An agent that runs in the sandbox by itself, and so can't be run again from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.episode import StopReason


class Outside(Protocol):
    """The journal of such an agent: what it asked for, in place of what it was told."""

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox itself: what happens in it is not journaled."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether an earlier life of the attempt has started the agent, in this sandbox."""
        ...

    @property
    def asked(self) -> Sequence[bytes]:
        """The requests of earlier lives, in the order of their turns."""
        ...

    async def note(self, request: bytes) -> None:
        """Note the request of the turn that was just sampled; return once both are durable."""
        ...

    async def stop(self, reason: StopReason) -> StopReason:
        """Note why the agent stopped, unless an earlier life has; return the durable reason."""
        ...

    @property
    def stopped(self) -> StopReason | None:
        """Why the agent had stopped in an earlier life."""
        ...


def runs_in_sandbox(program: object) -> bool:
    """Whether an agent program only waits for one that runs in the sandbox."""
    return getattr(program, "runs_in_sandbox", False) is True
