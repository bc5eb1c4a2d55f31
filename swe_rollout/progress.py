"""Progress of a run: the interface the worker reports to, and the command line displays."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Turn


class Phase(StrEnum):
    """The phase a running episode is in."""

    START = "start"
    AGENT = "agent"
    GRADE = "grade"
    COMMIT = "commit"


class Progress(Protocol):
    """Receives every event of a run, in order per episode. Methods must not block."""

    def planned(self, episodes: int, committed: int) -> None:
        """Report the number of episodes of the job, and of those committed before this run."""
        ...

    def earlier(self, trajectory: Trajectory) -> None:
        """Report a trajectory that was committed before this run: all of them, before any other."""
        ...

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """Report that an episode entered a phase."""
        ...

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """Report that a turn ended, including its tool calls."""
        ...

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Report that attempt number `attempt` failed and will be retried."""
        ...

    def done(self, trajectory: Trajectory) -> None:
        """Report that a trajectory was committed."""
        ...
