"""Progress as log events: what `RolloutJob.run()` shows in a script or a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from swe_rollout.progress import Phase
    from swe_rollout.trajectory import EpisodeId, Failure, Trajectory, Turn

log = structlog.get_logger()


class LoggedProgress:
    """One event for each episode that ends; implements `Progress`."""

    def planned(self, episodes: int, committed: int) -> None:
        """Log how much there is to do."""
        log.info("planned", episodes=episodes, committed=committed)

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """Phases are not logged."""

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """Turns are not logged."""

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Log what broke; it is tried again."""
        log.info("retried", episode=str(episode), attempt=attempt, failure=failure.message)

    def done(self, trajectory: Trajectory) -> None:
        """Log how an episode ended."""
        log.info(
            "episode_done",
            episode=str(trajectory.episode),
            stop_reason=trajectory.stop_reason,
            reward=None if trajectory.reward is None else trajectory.reward.value,
            failure=trajectory.failure.message if trajectory.failure else None,
        )
