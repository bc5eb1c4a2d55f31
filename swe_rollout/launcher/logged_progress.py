"""Log the progress of a job, for when nobody watches a display."""

from __future__ import annotations

import structlog

from swe_rollout.events import AttemptRetried, Committed, Event, Planned

log = structlog.get_logger()


def log_progress(event: Event) -> None:
    """Log the plan, retries and finished episodes, but not the frequent phases and turns."""
    match event:
        case Planned(episodes, committed):
            log.info("planned", episodes=episodes, committed=committed)
        case AttemptRetried(episode, failure, attempt):
            log.info("retried", episode=str(episode), attempt=attempt, failure=failure.message)
        case Committed(trajectory):
            log.info(
                "episode_done",
                episode=str(trajectory.episode),
                stop_reason=trajectory.stop_reason,
                reward=None if trajectory.reward is None else trajectory.reward.value,
                failure=trajectory.failure.message if trajectory.failure else None,
            )
