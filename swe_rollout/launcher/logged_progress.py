"""The progress of a job in the log, where nobody watches a display."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from swe_rollout.progress import Phase
    from swe_rollout.types.episode import EpisodeId, Failure
    from swe_rollout.types.trajectory import Trajectory
    from swe_rollout.types.turn import Turn

log = structlog.get_logger()


class LoggedProgress:
    """Logs the plan, retries and finished episodes; implements `Progress`."""

    def planned(self, episodes: int, committed: int) -> None:
        log.info("planned", episodes=episodes, committed=committed)

    def earlier(self, trajectory: Trajectory) -> None:
        """Log nothing: their number is in the plan."""

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """Log nothing: phases are too frequent."""

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """Log nothing: turns are too frequent."""

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        log.info("retried", episode=str(episode), attempt=attempt, failure=failure.message)

    def done(self, trajectory: Trajectory) -> None:
        log.info(
            "episode_done",
            episode=str(trajectory.episode),
            stop_reason=trajectory.stop_reason,
            reward=None if trajectory.reward is None else trajectory.reward.value,
            failure=trajectory.failure.message if trajectory.failure else None,
        )
