"""Hold starts of sandboxes back while none succeeds: a circuit breaker around a provider.

A platform that starts nothing, with a full disk, a registry that is down or an API server that does
not respond, would break every episode that is begun. So after some failures in a row, starts wait,
and one at a time is tried, with growing pauses, until one succeeds. The starts that fail meanwhile
are repeated here, and no attempt is charged for them. Sandboxes that run go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog

from swe_rollout.errors import EpisodeError, SandboxError, UnreachableError, boundary
from swe_rollout.sandbox.base import (
    Sandbox,
    SandboxProvider,
    SandboxRequest,
)
from swe_rollout.sandbox.wrapped import WrappedSandboxes
from swe_rollout.spec.status import ConditionType
from swe_rollout.worker.service_health import LONGEST_PAUSE_S, Conditions

log = structlog.get_logger()

FAILURES: Final = 3
"""Starts that fail in a row before others wait."""
ONE_TASK_PATIENCE_S: Final = 120.0
"""How long they wait when all of them are of one task, whose image may be what is broken."""
_SEVERAL: Final = 2
FIRST_PAUSE_S: Final = 1.0
"""The pause before the first start that is tried alone; doubled after each that fails."""


class GuardedSandboxes(WrappedSandboxes):
    """A provider whose starts wait while none succeeds."""

    def __init__(
        self,
        provider: SandboxProvider,
        conditions: Conditions,
        *,
        patience_s: float,
        marks_each: bool = False,
    ) -> None:
        """After `patience_s` of it, failures are raised again, and cost what they cost otherwise: a
        job that has only tasks left that can't start has to end. With `marks_each`, the condition
        follows each start, also while none waits.
        """
        super().__init__(provider)
        self._conditions = conditions
        self._patience_s = patience_s
        self._marks_each = marks_each
        self._turn = asyncio.Lock()
        """Held by the one start that is tried; the others queue for it."""
        self._failures = 0
        self._tasks = set[str]()
        """Tasks whose starts failed in a row; no more than two are kept."""
        self._has_worked = False
        self._held_since: float | None = None
        self._tried = 0
        """Starts that failed since `_held_since`."""

    @property
    def holds(self) -> bool:
        """Whether starts wait now."""
        return self._held_since is not None

    @property
    def _is_patient(self) -> bool:
        several = len(self._tasks) >= _SEVERAL
        patience_s = self._patience_s if several else min(self._patience_s, ONE_TASK_PATIENCE_S)
        return self._held_since is None or time.monotonic() - self._held_since < patience_s

    @property
    def _pause_s(self) -> float:
        if not self._is_patient:
            return FIRST_PAUSE_S
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._tried, 16))

    async def start(self, request: SandboxRequest) -> Sandbox:
        while True:
            trying = self._try_in_turn if self.holds else self._try
            if (found := await trying(request)) is not None:
                return found

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        self._provider.prewarm(() if self.holds else requests)

    async def _try_in_turn(self, request: SandboxRequest) -> Sandbox | None:
        async with self._turn:
            if self.holds:
                await asyncio.sleep(self._pause_s)
            if self.holds:
                return await self._try(request)
        return None  # they start again: all that wait go on at once

    async def _try(self, request: SandboxRequest) -> Sandbox | None:
        """Start the sandbox; none when that failed and is to be repeated."""
        try:
            async with boundary(SandboxError, "starting the sandbox"):
                sandbox = await self._provider.start(request)
        except (EpisodeError, UnreachableError) as error:
            if self._marks_each:
                self._conditions.fail(ConditionType.SANDBOXES_READY, error)
            self._count(request, error)
            if not self._repeats(error):
                raise
            log.info("start_is_repeated", episode=str(request.episode), why=str(error))
            return None
        self._start_all()
        return sandbox

    def _count(self, request: SandboxRequest, error: EpisodeError | UnreachableError) -> None:
        """Count a failed start, and hold the others back when there are too many in a row."""
        if not _is_of_platform(error):
            return
        self._failures += 1
        if len(self._tasks) < _SEVERAL:
            self._tasks.add(request.episode.instance)
        # A cluster that has started sandboxes, and does not respond, can start no other.
        is_down = isinstance(error, UnreachableError) and self._has_worked
        if not self.holds and not is_down and self._failures < FAILURES:
            return
        if self._held_since is None:
            self._held_since, self._tried = time.monotonic(), 0
            self._provider.prewarm(())
            log.warning("starts_held", failures=self._failures, why=str(error))
        else:
            self._tried += 1
        self._conditions.mark(
            ConditionType.SANDBOXES_READY,
            type(error).__name__,
            f"no sandbox starts, {self._failures} in a row failed; one at a time is tried until "
            f"one starts. The last one: {error}" + (f". {error.fix}" if error.fix else ""),
        )

    def _repeats(self, error: EpisodeError | UnreachableError) -> bool:
        """Whether a start that failed is repeated at nobody's expense."""
        return self.holds and self._is_patient and _is_of_platform(error)

    def _start_all(self) -> None:
        self._has_worked = True
        self._failures = 0
        self._tasks.clear()
        if self._held_since is not None:
            log.info("starts_go_on", after_s=round(time.monotonic() - self._held_since, 1))
            self._held_since = None
            self._conditions.clear(ConditionType.SANDBOXES_READY)
        elif self._marks_each:
            self._conditions.clear(ConditionType.SANDBOXES_READY)


def _is_of_platform(error: EpisodeError | UnreachableError) -> bool:
    """Whether a failed start says something about others.

    What lacks room waits for it in the scheduler, and what no repetition helps is of its task.
    """
    return isinstance(error, UnreachableError) or (error.retryable and not error.scarce)
