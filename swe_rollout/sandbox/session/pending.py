"""Requests that wait for their results, and the errors for results that will never arrive."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session.frames import Request


@dataclass(slots=True)
class PendingRequest:
    """One request on its way to a supervisor."""

    number: int
    request: Request
    result: asyncio.Future[ExecResult] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    sent: bool = False
    """Whether any part of it may have reached the supervisor."""

    def resolve(self, result: ExecResult) -> None:
        """Deliver the result unless the caller has given up."""
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: SandboxError) -> None:
        """Raise `error` in the caller unless it has given up."""
        if not self.result.done():
            self.result.set_exception(error)


class PendingRequests(dict[int, PendingRequest]):
    """A session's requests without a result, by number; numbers are never reused."""

    def __init__(self, last_number: int = 0) -> None:
        """Start numbering after `last_number`."""
        super().__init__()
        self._first_number = self._last_number = last_number

    def is_of_another_process(self, number: int) -> bool:
        """Whether a process before made the request, which may still run."""
        return 0 < number <= self._first_number

    def next_number(self) -> int:
        """Return a number that no earlier request of this session used."""
        self._last_number += 1
        return self._last_number

    def fail_all(self, error: SandboxError) -> None:
        """Raise a copy of `error` in every caller."""
        while self:
            self.popitem()[1].fail(copy_of(error))


def copy_of(error: SandboxError) -> SandboxError:
    """Copy an error, keeping its class, which says how the sandbox was lost.

    Raising one exception object in several tasks would mix their tracebacks.
    """
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied


def unresponsive_error(timeout_s: float) -> SandboxError:
    """Build the error for a supervisor that did not respond in time."""
    return SandboxError(
        "the sandbox does not answer",
        why=f"no response within {timeout_s:.0f} s, long after the command's own time",
        fix="the supervisor or the connection hangs; the episode is tried again elsewhere",
    )
