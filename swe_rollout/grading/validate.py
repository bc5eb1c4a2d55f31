"""Is an instance fit for use: does its reference fix resolve it, and does doing nothing not?

Needs no model. Used by the command line and by dataset builders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from swe_rollout.sandbox.repository import Patch
from swe_rollout.trajectory import EpisodeId

if TYPE_CHECKING:
    from swe_rollout.grading.grader import Grader
    from swe_rollout.instance import Instance
    from swe_rollout.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Validation:
    """What the grader says of the reference fix and of the untouched base."""

    instance_id: str
    gold: Verdict
    empty: Verdict
    """Of the base: the tests were really run."""

    @property
    def valid(self) -> bool:
        """Whether the gold patch resolves the task and the base does not."""
        return self.gold.resolved and not self.empty.resolved


async def validate(instance: Instance, grader: Grader) -> Validation:
    """Grade the gold patch and the base. Raises what the grader raises."""
    gold = await grader.grade(
        instance,
        Patch(instance.gold_patch),
        episode=EpisodeId("validate", instance.instance_id, 0),
    )
    empty = await grader.grade_base(
        instance, episode=EpisodeId("validate", instance.instance_id, 1)
    )
    return Validation(instance.instance_id, gold, empty)
