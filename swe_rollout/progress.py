"""What a run tells while it runs. The worker calls a `Progress`; the command line draws one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from swe_rollout.trajectory import EpisodeId, Failure, Trajectory, Turn


class Phase(StrEnum):
    """Where a running episode is."""

    START = "start"
    AGENT = "agent"
    GRADE = "grade"
    COMMIT = "commit"


class Progress(Protocol):
    """Told of everything that happens, in order for each episode; must return at once."""

    def planned(self, episodes: int, committed: int) -> None:
        """How many episodes the job has, and how many were committed before this run."""
        ...

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """An episode entered a phase."""
        ...

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """A turn ended, its tools have answered."""
        ...

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Attempt number `attempt` failed and another one follows."""
        ...

    def done(self, trajectory: Trajectory) -> None:
        """A trajectory was committed."""
        ...
