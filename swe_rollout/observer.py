"""Observer: told of everything that happens in a run, and how long it took.

`Recorder` tells it of attempts, the scheduler of waits and commits, and wrappers of the engine and
the sandboxes (`telemetry.wrappers`) of their calls. Metrics and spans are made from that in
`telemetry`; nothing else in the code knows of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Final

import structlog

from swe_rollout.errors import SweRolloutError
from swe_rollout.progress import Phase, Progress
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Turn

log = structlog.get_logger()


NO_WAIT_S: Final = 1e-3
"""Up to this, nobody waited: it takes that long to look."""


class Service(StrEnum):
    """What an episode may have to wait for."""

    ENGINE = "engine"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Span:
    """When something began, and how long it took."""

    began_at: float
    """Seconds since 1970."""
    seconds: float
    error: str = ""
    """The class of the exception that ended it; empty: none did."""


@dataclass(frozen=True, slots=True)
class TurnId:
    """A turn of an episode."""

    episode: EpisodeId
    index: int
    branch: int = 0


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call of the engine. Holds no text and no ids."""

    turn: TurnId
    policy: str
    """Engine and model, such as `sglang:Qwen/Qwen3-8B`."""
    sampling: Sampling
    max_new_tokens: int
    span: Span
    waited_s: float = 0.0
    """Of the span: how long the episode's clock stood still, because no server took the call."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt: those read from the prefix cache."""
    sampled_tokens: int = 0
    finish_reason: FinishReason | None = None
    """None if the call failed."""


@dataclass(frozen=True, slots=True)
class SandboxStart:
    """One start of a sandbox."""

    episode: EpisodeId
    role: str
    """agent or grader."""
    span: Span
    is_warm: bool = False
    """Whether the sandbox had been started before it was requested."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One command in a sandbox. Holds neither the command nor its output."""

    episode: EpisodeId
    role: str
    span: Span
    branch: int = 0
    """Of the agent that ran it."""
    exit_code: int | None = None
    """None if the sandbox was lost."""
    timed_out: bool = False


class Observer:
    """Ignores everything; a subclass overrides what it wants to know. Methods must not block.

    The first six are those of `Progress`.
    """

    def planned(self, episodes: int, committed: int) -> None:
        """Episodes of the job or the share, and those of them that were committed before."""

    def earlier(self, trajectory: Trajectory) -> None:
        """A trajectory that was committed before."""

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """An episode entered a phase."""

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """A turn ended, with its tool calls."""

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Attempt number `attempt` failed, and another one follows."""

    def done(self, trajectory: Trajectory) -> None:
        """A trajectory was committed."""

    def attempt_began(self, episode: EpisodeId, number: int) -> None:
        """An attempt at an episode begins, in the task that plays it."""

    def attempt_ended(self, episode: EpisodeId, trajectory: Trajectory | None) -> None:
        """The attempt ended, in the same task; None: it was broken off, and leaves no record."""

    def engine_call_began(self, turn: TurnId) -> None:
        """The engine is called for a turn; `engine_called` follows."""

    def engine_called(self, call: EngineCall) -> None:
        """A call of the engine ended."""

    def sandbox_started(self, start: SandboxStart) -> None:
        """A sandbox was started, or was not."""

    def executed(self, execution: Execution) -> None:
        """A command in a sandbox ended."""

    def waited(self, service: Service, seconds: float) -> None:
        """An episode waited for a service."""

    def store_failed(self, error: SweRolloutError) -> None:
        """The store refused a read or a write, which is tried again."""


class Observers(Observer):
    """Tells several observers, whose own errors end no episode."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._has_failed = False

    def planned(self, episodes: int, committed: int) -> None:
        self._tell(lambda each: each.planned(episodes, committed))

    def earlier(self, trajectory: Trajectory) -> None:
        self._tell(lambda each: each.earlier(trajectory))

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        self._tell(lambda each: each.phase(episode, phase))

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        self._tell(lambda each: each.turn(episode, turn))

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        self._tell(lambda each: each.retried(episode, failure, attempt))

    def done(self, trajectory: Trajectory) -> None:
        self._tell(lambda each: each.done(trajectory))

    def attempt_began(self, episode: EpisodeId, number: int) -> None:
        self._tell(lambda each: each.attempt_began(episode, number))

    def attempt_ended(self, episode: EpisodeId, trajectory: Trajectory | None) -> None:
        self._tell(lambda each: each.attempt_ended(episode, trajectory))

    def engine_call_began(self, turn: TurnId) -> None:
        self._tell(lambda each: each.engine_call_began(turn))

    def engine_called(self, call: EngineCall) -> None:
        self._tell(lambda each: each.engine_called(call))

    def sandbox_started(self, start: SandboxStart) -> None:
        self._tell(lambda each: each.sandbox_started(start))

    def executed(self, execution: Execution) -> None:
        self._tell(lambda each: each.executed(execution))

    def waited(self, service: Service, seconds: float) -> None:
        self._tell(lambda each: each.waited(service, seconds))

    def store_failed(self, error: SweRolloutError) -> None:
        self._tell(lambda each: each.store_failed(error))

    def _tell(self, event: Callable[[Observer], None]) -> None:
        for each in self._observers:
            try:
                event(each)
            except Exception:
                # Once: what fails for one event fails for thousands.
                if not self._has_failed:
                    log.exception("observer_failed", observer=type(each).__name__)
                self._has_failed = True


@dataclass(frozen=True, slots=True)
class ObservedProgress:
    """A `Progress` of which an observer is told, too."""

    to: Progress
    observer: Observer

    def planned(self, episodes: int, committed: int) -> None:
        self.to.planned(episodes, committed)
        self.observer.planned(episodes, committed)

    def earlier(self, trajectory: Trajectory) -> None:
        self.to.earlier(trajectory)
        self.observer.earlier(trajectory)

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        self.to.phase(episode, phase)
        self.observer.phase(episode, phase)

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        self.to.turn(episode, turn)
        self.observer.turn(episode, turn)

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        self.to.retried(episode, failure, attempt)
        self.observer.retried(episode, failure, attempt)

    def done(self, trajectory: Trajectory) -> None:
        self.to.done(trajectory)
        self.observer.done(trajectory)


@contextmanager
def waiting(observer: Observer, service: Service) -> Iterator[None]:
    """Report how long the block waits for a service."""
    began = perf_counter()
    try:
        yield
    finally:
        seconds = perf_counter() - began
        if seconds > NO_WAIT_S:
            observer.waited(service, seconds)
