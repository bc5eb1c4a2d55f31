"""Observer: a subscriber to the stream of events that has one method for each of them."""

from __future__ import annotations

from typing import assert_never

from swe_rollout.errors import SweRolloutError
from swe_rollout.events import (
    AttemptBegan,
    AttemptEnded,
    AttemptRetried,
    Committed,
    EngineCall,
    EngineCallBegan,
    Event,
    Execution,
    FoundCommitted,
    Phase,
    PhaseBegan,
    Planned,
    SandboxStart,
    Service,
    StoreFailed,
    TurnEnded,
    TurnId,
    Waited,
)
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Turn


class Observer:
    """Ignores everything; a subclass overrides what it wants to know. Methods must not block."""

    def __call__(self, event: Event) -> None:  # noqa: C901, PLR0912 - a table
        """Call the method of an event."""
        match event:
            case Execution():
                self.executed(event)
            case EngineCall():
                self.engine_called(event)
            case EngineCallBegan(turn_id):
                self.engine_call_began(turn_id)
            case TurnEnded(episode, turn):
                self.turn(episode, turn)
            case PhaseBegan(episode, phase):
                self.phase(episode, phase)
            case SandboxStart():
                self.sandbox_started(event)
            case AttemptBegan(episode, number):
                self.attempt_began(episode, number)
            case AttemptEnded(episode, trajectory):
                self.attempt_ended(episode, trajectory)
            case AttemptRetried(episode, failure, attempt):
                self.retried(episode, failure, attempt)
            case Committed(trajectory):
                self.done(trajectory)
            case FoundCommitted(trajectory):
                self.earlier(trajectory)
            case Planned(episodes, committed):
                self.planned(episodes, committed)
            case Waited(service, seconds):
                self.waited(service, seconds)
            case StoreFailed(error):
                self.store_failed(error)
            case _:
                assert_never(event)

    def planned(self, episodes: int, committed: int) -> None:
        """The size of the job or the share is known, and how much of it was committed before."""

    def earlier(self, trajectory: Trajectory) -> None:
        """A trajectory was committed before this run."""

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
        """The attempt ended, in the same task; without a trajectory it was broken off."""

    def engine_call_began(self, turn: TurnId) -> None:
        """The engine is called for a turn; `engine_called` follows."""

    def engine_called(self, call: EngineCall) -> None:
        """A call of the engine ended."""

    def sandbox_started(self, start: SandboxStart) -> None:
        """A sandbox was started, or failed to start."""

    def executed(self, execution: Execution) -> None:
        """A command in a sandbox ended."""

    def waited(self, service: Service, seconds: float) -> None:
        """An episode waited for a service."""

    def store_failed(self, error: SweRolloutError) -> None:
        """The store refused a read or a write, which is tried again."""
