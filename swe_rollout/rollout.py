"""What every episode of a job shares, and what one try at an episode is. No behaviour here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

    from swe_rollout.agent.prompts import Prompts
    from swe_rollout.agent.renderer import Renderer
    from swe_rollout.agent.tools.base import Toolbox
    from swe_rollout.engine.base import Sampling, TokenEngine
    from swe_rollout.grading.grader import Grader
    from swe_rollout.instance import Instance
    from swe_rollout.limits import Limits
    from swe_rollout.progress import Progress
    from swe_rollout.sandbox.base import SandboxProvider
    from swe_rollout.trajectory import EpisodeId


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at an episode."""

    episode: EpisodeId
    instance: Instance
    number: int
    """1 for the first."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The parts of a job that its episodes share."""

    engine: TokenEngine
    renderer: Renderer
    toolbox: Toolbox
    prompts: Prompts
    sampling: Sampling
    """Its seed is the base that `sampling_for` derives each episode's own from."""
    limits: Limits
    sandboxes: SandboxProvider
    grader: Grader | None
    """None: nothing is graded, no reward is earned."""
    progress: Progress
    policy: Callable[[EpisodeId], str]
    """What the record calls the policy of an episode."""
    spec_digest: str

    def sampling_for(self, episode: EpisodeId) -> Sampling:
        """How this episode samples: its own seed, the same in every attempt."""
        if self.sampling.seed is None:
            return self.sampling
        seed = (self.sampling.seed + crc32(str(episode).encode())) & 0x7FFFFFFF
        return replace(self.sampling, seed=seed)
