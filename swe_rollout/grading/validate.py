"""Check that tasks can be graded: the reference fix resolves them, doing nothing does not, and
their images hold no copy of the fix.

Needs no model. Used by the command line and by people who build datasets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swe_rollout.errors import gather_all
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestStatus, Verdict


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdicts on an instance's reference fix and on its untouched base."""

    instance_id: str
    gold: Verdict
    empty: Verdict
    """The verdict on the untouched base, whose tests were run."""
    copies: tuple[str, ...] = ()
    """Files in the image from which an agent could copy the fix."""
    watched: int = 0
    """Number of tests to fix whose forgeries a blind run finds out."""
    odds: float = 1.0
    """The odds of guessing what the tests to fix expect (docs/explanation/grading.md)."""
    patch: Verdict | None = None
    """The verdict on a further patch, if one was given."""

    @property
    def passing_before(self) -> tuple[str, ...]:
        """The tests to fix that pass on the untouched base."""
        return tuple(
            n for n, status in self.empty.report.fail_to_pass.items() if status is TestStatus.PASSED
        )

    @property
    def problem(self) -> str:
        """What is wrong with the task or with the further patch; empty if both are as they should.

        The gold patch has to resolve the task, the base must not, and no copy may be found.
        """
        if not self.gold.resolved:
            return "the gold patch does not resolve it"
        if self.empty.resolved:
            return f"the tests pass without a fix{_named(self.passing_before)}"
        if self.copies:
            return f"the image holds the fix{_named(self.copies)}"
        failed = self.patch is not None and not self.patch.resolved
        return "the patch does not resolve it" if failed else ""


def _named(found: Sequence[str]) -> str:
    """Return the first of what was found, and the number of the others."""
    more = f" and {len(found) - 1} more" if found[1:] else ""
    return f": {found[0]}{more}" if found else ""


async def validate(instance: Instance, grader: Grader, *, diff: str | None = None) -> Validation:
    """Grade the gold patch and the base, and look for copies. Raises what the grader raises.

    `diff` is a further patch to grade.
    """

    def episode(number: int) -> EpisodeId:
        return EpisodeId("validate", instance.instance_id, number)

    gold = await grader.grade_reference(instance, episode=episode(0))
    empty = await grader.grade_base(instance, episode=episode(1))
    copies = await grader.find_copies(instance, episode=episode(2))
    proof = await grader.prove(instance, episode=episode(0))
    watched = len(proof.blind.watched(instance.expected))
    odds = proof.blind.odds
    patch = None
    if diff is not None:
        patch = await grader.grade(instance, Patch(diff), episode=episode(3))
    return Validation(instance.instance_id, gold, empty, copies, watched, odds, patch)


async def validate_dataset(
    instances: Sequence[Instance],
    grader: Grader,
    *,
    parallelism: int,
    on_result: Callable[[Validation], None],
    diff: str | None = None,
) -> tuple[Validation, ...]:
    """Validate instances, `parallelism` at a time; return results in their order.

    `on_result` is called with each result when it is ready; `diff` is graded as well. Raises
    ExtensionError when a log parser is missing, and the first EpisodeError: a sandbox that breaks
    says nothing about the task.
    """
    grader.site.require(instances)
    slots = asyncio.Semaphore(parallelism)

    async def one(instance: Instance) -> Validation:
        async with slots:
            result = await validate(instance, grader, diff=diff)
        on_result(result)
        return result

    return await gather_all([one(instance) for instance in instances])
