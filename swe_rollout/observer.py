"""Observer: a subscriber to the event stream with one method per event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from swe_rollout.errors import SweRolloutError
from swe_rollout.events import (
    AttemptBegan,
    AttemptEnded,
    AttemptRetried,
    CacheAwaited,
    Committed,
    EngineCall,
    EngineCallBegan,
    Event,
    Execution,
    FoundCommitted,
    Phase,
    PhaseBegan,
    Planned,
    SampleReplaced,
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
    """Ignores every event; subclasses override the methods they need, which must not block."""

    def __call__(self, event: Event) -> None:
        """Call the method of an event."""
        _CALLS[type(event)](self, event)

    def planned(self, episodes: int, committed: int) -> None:
        """The size of the job or shard is known, and how much of it was committed earlier."""

    def earlier(self, trajectory: Trajectory) -> None:
        """A trajectory was committed before this run."""

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """An episode entered a phase."""

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """A turn ended, with its tool calls."""

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Attempt number `attempt` failed, and another one follows."""

    def replaced(self, failed: EpisodeId, by: EpisodeId) -> None:
        """A sample failed for good, and `by` is played in its place, one more episode."""

    def done(self, trajectory: Trajectory) -> None:
        """A trajectory was committed."""

    def attempt_began(self, episode: EpisodeId, number: int) -> None:
        """An attempt at an episode begins, in the task that plays it."""

    def attempt_ended(self, episode: EpisodeId, trajectory: Trajectory | None) -> None:
        """The attempt ended, in the same task; it was interrupted if `trajectory` is None."""

    def engine_call_began(self, turn: TurnId) -> None:
        """A call to the engine for a turn begins; `engine_called` follows."""

    def engine_called(self, call: EngineCall) -> None:
        """A call to the engine ended."""

    def sandbox_started(self, start: SandboxStart) -> None:
        """A sandbox was started, or failed to start."""

    def executed(self, execution: Execution) -> None:
        """A command in a sandbox ended."""

    def waited(self, service: Service, seconds: float) -> None:
        """An episode waited for a service."""

    def cache_awaited(self, starting: int, turns: int, held_tokens: int, cache_tokens: int) -> None:
        """The number of those has changed that wait for room in the engine's KV cache."""

    def store_failed(self, error: SweRolloutError) -> None:
        """The store refused a read or a write, which will be retried."""


_CALLS: Final[dict[type, Callable[[Observer, Any], None]]] = {
    Execution: lambda to, event: to.executed(event),
    EngineCall: lambda to, event: to.engine_called(event),
    EngineCallBegan: lambda to, event: to.engine_call_began(event.turn),
    TurnEnded: lambda to, event: to.turn(event.episode, event.turn),
    PhaseBegan: lambda to, event: to.phase(event.episode, event.phase),
    SandboxStart: lambda to, event: to.sandbox_started(event),
    AttemptBegan: lambda to, event: to.attempt_began(event.episode, event.number),
    AttemptEnded: lambda to, event: to.attempt_ended(event.episode, event.trajectory),
    AttemptRetried: lambda to, event: to.retried(event.episode, event.failure, event.attempt),
    Committed: lambda to, event: to.done(event.trajectory),
    SampleReplaced: lambda to, event: to.replaced(event.failed, event.by),
    FoundCommitted: lambda to, event: to.earlier(event.trajectory),
    Planned: lambda to, event: to.planned(event.episodes, event.committed),
    Waited: lambda to, event: to.waited(event.service, event.seconds),
    CacheAwaited: lambda to, event: to.cache_awaited(
        event.starting, event.turns, event.held_tokens, event.cache_tokens
    ),
    StoreFailed: lambda to, event: to.store_failed(event.error),
}
"""The method call for each type of event; a test checks that it covers `Event`."""
