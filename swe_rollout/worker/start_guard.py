"""Hold back sandbox starts while none succeeds: a circuit breaker around a provider.

A platform that can start nothing (full disk, registry down, unresponsive API server) would fail
every new episode. So after several consecutive failures, starts wait, and one at a time is tried,
with growing pauses, until one succeeds. Starts that fail meanwhile are retried here and cost no
attempts. Running sandboxes are not affected.
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
"""Consecutive failed starts before others wait."""
ONE_TASK_PATIENCE_S: Final = 120.0
"""How long starts wait if all are of one task, because its image may be the cause."""
_SEVERAL: Final = 2
FIRST_PAUSE_S: Final = 1.0
"""The pause before the first trial start; doubled after each failure."""


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
        """After `patience_s`, failures are raised as usual, so that a job ends if none of its
        remaining tasks can start. With `marks_each`, every start updates the condition, even while
        none waits.
        """
        super().__init__(provider)
        self._conditions = conditions
        self._patience_s = patience_s
        self._marks_each = marks_each
        self._turn = asyncio.Lock()
        """Held by the trial start; the others queue for it."""
        self._failures = 0
        self._tasks = set[str]()
        """Tasks whose starts failed consecutively; at most two are kept."""
        self._has_worked = False
        self._held_since: float | None = None
        self._tried = 0
        """Number of starts that failed since `_held_since`."""

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
        return None  # starts work again: let all waiting ones continue at once

    async def _try(self, request: SandboxRequest) -> Sandbox | None:
        """Start the sandbox; return None if that failed and must be retried."""
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
        """Count a failed start, and hold others back after too many in a row."""
        if not _is_of_platform(error):
            return
        self._failures += 1
        if len(self._tasks) < _SEVERAL:
            self._tasks.add(request.episode.instance)
        # If a cluster that has started sandboxes does not respond, it can start no others.
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
        """Whether a failed start is retried without costing an attempt."""
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
    """Whether a failed start predicts the failure of others.

    Lack of capacity is handled in the scheduler; permanent errors concern only their task.
    """
    return isinstance(error, UnreachableError) or (error.retryable and not error.scarce)
