"""The one stream of what happens in a run.

Each event is a frozen value, published once, where it happens: the `Recorder` publishes attempts,
phases and turns; the scheduler publishes plans, waits and commits; `worker.publishing` publishes
calls to the engine and the sandboxes. Metrics, spans, live views, logs and a worker's report
subscribe. An `Observer` is a subscriber with one method per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Final, TypeAlias

import structlog

from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.spec.policy import Sampling
from swe_rollout.text.user_code import said, user_code
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Turn

log = structlog.get_logger()


NO_WAIT_S: Final = 1e-3
"""Shorter waits are ignored: it takes this long to find a service ready."""


class Phase(StrEnum):
    """The phase a running episode is in."""

    START = "start"
    AGENT = "agent"
    GRADE = "grade"
    COMMIT = "commit"


class Service(StrEnum):
    """A service that an episode may have to wait for."""

    ENGINE = "engine"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Span:
    """The start and duration of an operation."""

    began_at: float
    """Start, in seconds since 1970."""
    seconds: float
    error: str = ""
    """The class of the exception that ended it; empty after success."""


@dataclass(frozen=True, slots=True)
class TurnId:
    """A turn of an episode."""

    episode: EpisodeId
    index: int
    branch: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """The size of the job, or of a worker's shard, is known."""

    episodes: int
    committed: int
    """Episodes that were committed before this run."""


@dataclass(frozen=True, slots=True)
class FoundCommitted:
    """A trajectory was committed before this run. These events precede all other episodes'."""

    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class AttemptBegan:
    """An attempt at an episode begins; published in the task that plays it."""

    episode: EpisodeId
    number: int
    """Counts from 1."""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt ended; published in the task that played it."""

    episode: EpisodeId
    trajectory: Trajectory | None
    """None if the attempt was interrupted and leaves no record."""


@dataclass(frozen=True, slots=True)
class AttemptRetried:
    """An attempt failed, and another one follows."""

    episode: EpisodeId
    failure: Failure
    attempt: int
    """The number of the attempt that failed."""


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """An episode entered a phase."""

    episode: EpisodeId
    phase: Phase


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn ended, with its tool calls."""

    episode: EpisodeId
    turn: Turn


@dataclass(frozen=True, slots=True)
class Committed:
    """A trajectory was committed."""

    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class SampleReplaced:
    """A sample failed for good, and another one of its task is played in its place.

    It precedes the commit of the failed one.
    """

    failed: EpisodeId
    by: EpisodeId


@dataclass(frozen=True, slots=True)
class EngineCallBegan:
    """A call to the engine for a turn begins. An `EngineCall` follows."""

    turn: TurnId


@dataclass(frozen=True, slots=True)
class EngineCall:
    """A call to the engine ended. The event holds no text and no token ids."""

    turn: TurnId
    policy: str
    """Engine and model, such as `sglang:Qwen/Qwen3-8B`."""
    sampling: Sampling
    max_new_tokens: int
    span: Span
    waited_s: float = 0.0
    """The part of the span during which no server took the call, and the episode's clock stood
    still."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were read from the prefix cache."""
    sampled_tokens: int = 0
    finish_reason: FinishReason | None = None
    """None if the call failed."""


@dataclass(frozen=True, slots=True)
class SandboxStart:
    """A sandbox was started, or failed to start."""

    episode: EpisodeId
    role: str
    """agent or grader."""
    span: Span
    is_warm: bool = False
    """Whether the sandbox had been started before it was requested."""


@dataclass(frozen=True, slots=True)
class Execution:
    """A command in a sandbox ended. The event holds neither the command nor its output."""

    episode: EpisodeId
    role: str
    span: Span
    branch: int = 0
    """The branch of the agent that ran it."""
    exit_code: int | None = None
    """None if the sandbox was lost."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Waited:
    """An episode waited for a service."""

    service: Service
    seconds: float


@dataclass(frozen=True, slots=True)
class CacheAwaited:
    """The number of those has changed that wait for room in the engine's KV cache."""

    starting: int
    """Episodes that have not started."""
    turns: int
    """Turns of running episodes."""
    held_tokens: int
    """The contexts that have room."""
    cache_tokens: int
    """This process's share of the caches of all servers."""


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store refused a read or a write, which will be retried."""

    error: SweRolloutError


Event: TypeAlias = (
    Planned
    | FoundCommitted
    | AttemptBegan
    | AttemptEnded
    | AttemptRetried
    | PhaseBegan
    | TurnEnded
    | Committed
    | SampleReplaced
    | EngineCallBegan
    | EngineCall
    | SandboxStart
    | Execution
    | Waited
    | CacheAwaited
    | StoreFailed
)
Subscriber: TypeAlias = Callable[[Event], None]
"""Receives every event of a run, in order per episode; must not block."""


class Events:
    """Passes each event to every subscriber; a subscriber's error never ends an episode."""

    def __init__(self, *subscribers: Subscriber | None) -> None:
        """Ignore each None. Raises UsageError for anything else that is not a subscriber."""
        self._subscribers = tuple(each for each in subscribers if each is not None)
        for each in self._subscribers:
            if not callable(each):
                raise UsageError(
                    f"a {type(each).__name__} can't be told of events",
                    fix="make it a subclass of swe_rollout.observer.Observer, or a function of one",
                )
        self._has_failed = False

    def __call__(self, event: Event) -> None:
        """Publish an event."""
        for each in self._subscribers:
            try:
                each(event)
            except Exception as error:  # noqa: BLE001 - logged with its lines
                # Log it once: a subscriber that fails for one event fails for thousands.
                if not self._has_failed:
                    found = user_code(error, is_blamed=True)
                    log.warning(
                        "observer_failed",
                        observer=type(each).__name__,
                        error=said(error),
                        **({"exception": found.trace} if found else {"exc_info": error}),
                    )
                self._has_failed = True


@contextmanager
def waiting(publish: Subscriber, service: Service) -> Iterator[None]:
    """Publish how long the block waits for a service."""
    began = perf_counter()
    try:
        yield
    finally:
        seconds = perf_counter() - began
        if seconds > NO_WAIT_S:
            publish(Waited(service, seconds))
