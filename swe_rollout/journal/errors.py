"""What can be wrong with a journal. Neither is a failure of the episode: no record tells of it."""

from __future__ import annotations

from swe_rollout.errors import SweRolloutError


class DivergedError(SweRolloutError):
    """A resumed program asked for something else than it did before: it begins anew."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "the episode can't go on from its journal",
            why=why,
            fix="nothing: it begins anew. A program, tool or parser that does not do the same for "
            "the same answers can't be resumed",
        )


class TakenOverError(SweRolloutError):
    """Another process goes on with this episode; this one stops, and commits nothing."""

    def __init__(self, address: str, writer: str) -> None:
        super().__init__(
            "another process has taken over this episode",
            why=f"{address} was written by {writer}",
            fix="run one worker for each shard of a job, and one `swe-rollout run` for a job",
        )
