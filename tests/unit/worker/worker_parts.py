"""Episodes that end as a test says, for crews whose store is a real folder."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import Boundary
from swe_rollout.events import AttemptRetried, Committed, Event
from swe_rollout.spec.limits import RetrySpec
from swe_rollout.store.bucket import wait_until_idle
from swe_rollout.types.episode import EpisodeId, Failure, StopReason, Timing
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm, TestReport, Verdict, VerdictStatus

_E = TypeVar("_E")
LOST = Failure(Boundary.SANDBOX, "PodLostError", "gone", retryable=True)
DENIED = Failure(Boundary.CLUSTER, "ApiError", "401 Unauthorized", retryable=False)
NO_ROOM = Failure(Boundary.SANDBOX, "UnschedulableError", "full", retryable=True, scarce=True)
NO_IMAGE = Failure(Boundary.SANDBOX, "ImageUnavailableError", "none", retryable=False)
NO_ENGINE = Failure(Boundary.ENGINE, "EngineLostError", "silent", retryable=True)
BUSY = Failure(Boundary.ENGINE, "UnavailableError", "queue is full", retryable=True)
TASK = Instance(instance_id="one", problem_statement="fix it", image="image:1")


def attempts(count: int) -> list[Attempt]:
    """The first attempts of so many samples of one task."""
    return [Attempt(EpisodeId("job", "one", sample), TASK, 1) for sample in range(count)]


def trajectory(
    attempt: Attempt, *, failure: Failure | None = None, resolved: bool = True
) -> Trajectory:
    """What the attempt left: graded, unless something broke."""
    status = VerdictStatus.RESOLVED if resolved else VerdictStatus.UNRESOLVED
    verdict = None if failure else Verdict(status, TestReport({}, {}))
    return Trajectory(
        episode=attempt.episode,
        policy="scripted:gold",
        token_ids=(),
        loss_mask=(),
        logprobs=(),
        segments=(),
        turns=(),
        stop_reason=None if failure else StopReason.SUBMITTED,
        patch="",
        verdict=verdict,
        reward=None
        if verdict is None
        else Reward((RewardTerm("resolved", float(verdict.resolved)),)),
        failure=failure,
        attempt=attempt.number,
        seed=None,
        timing=Timing(),
        spec_digest="0123456789ab",
        software={},
        finished_at="2026-11-20T10:00:00.000+00:00",
    )


@dataclass
class Listener:
    """A subscriber that remembers every event."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Remember an event."""
        self.events.append(event)

    def of(self, kind: type[_E]) -> list[_E]:
        """Return the events of a kind."""
        return [each for each in self.events if isinstance(each, kind)]

    @property
    def told(self) -> list[Trajectory]:
        """What was committed."""
        return [each.trajectory for each in self.of(Committed)]

    @property
    def again(self) -> list[int]:
        """The attempts that were followed by others."""
        return [each.attempt for each in self.of(AttemptRetried)]


@dataclass
class Stage:
    """Stands in for `run_episode`: attempts wait for the curtain, then fail or not, in order."""

    failures: deque[Failure | None] = field(default_factory=deque)
    curtain: asyncio.Event = field(default_factory=asyncio.Event)
    began: list[Attempt] = field(default_factory=list)
    playing: int = 0
    most: int = 0
    cancelled: int = 0

    async def run_episode(self, attempt: Attempt, context: JobContext) -> Trajectory:  # noqa: ARG002
        """As `episode.run_episode`."""
        self.began.append(attempt)
        self.playing += 1
        self.most = max(self.most, self.playing)
        try:
            await self.curtain.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0.01)  # as long as it takes to close a sandbox
            raise
        finally:
            self.playing -= 1
        failure = self.failures.popleft() if self.failures else None
        return trajectory(attempt, failure=failure)


@dataclass
class Shared:
    """The part of a context that a scheduler looks at."""

    publish: Listener = field(default_factory=Listener)
    retry: RetrySpec = field(default_factory=lambda: RetrySpec(attempts=3, backoff_seconds=0.001))
    playing: tuple[Attempt, ...] = ()
    coming: tuple[Attempt, ...] = ()

    def prewarm(self, playing: Iterable[Attempt], coming: Iterable[Attempt]) -> None:
        """Remember what was told last."""
        self.playing, self.coming = tuple(playing), tuple(coming)


def context(shared: Shared) -> JobContext:
    """A context as a scheduler sees it; nothing else may look at it."""
    return cast("JobContext", shared)


async def settled() -> None:
    """Let everything that can go on now go on: tasks, and calls of the store on their threads."""
    quiet = 0
    while quiet < 20:
        await asyncio.sleep(0.002)
        quiet = quiet + 1 if wait_until_idle(0) else 0
