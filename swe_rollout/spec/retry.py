"""What failures cost a job. The string under a field is its documentation everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swe_rollout.spec.bounds import BUDGET_FLOOR
from swe_rollout.spec.model import Model


class Resume(StrEnum):
    """When an episode goes on where a process that died, or a sandbox that was lost, left it."""

    EXACT = "exact"
    """Where its sandbox can be rebuilt without a difference."""
    BEST = "best"
    """Also without processes that its commands had left running, and files that were not saved."""
    NEVER = "never"
    """It begins anew, and no journal is written."""


class RetrySpec(Model):
    """Retries after a failure that is not the policy's."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Tries of one episode in all; after the last, it is recorded as masked."""
    backoff_seconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Before the second try; doubled for each further one."""
    resume: Annotated[Resume, Field(exclude_if=lambda resume: resume is Resume.EXACT)] = (
        Resume.EXACT
    )
    """When an episode goes on at its last durable turn after a crash: `exact`, where its sandbox
    lives on or can be rebuilt as it was; `best`, also without processes that its commands had left
    running, which the record names; `never`: it begins anew, and no journal is written."""


class FailureBudget(Model):
    """When to stop a job whose infrastructure fails."""

    max_masked_fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Of the job's committed episodes, by whichever worker or earlier run, counted as ten while
    they are fewer, and at the end as they are; above it the job fails when one more is masked. 1:
    never. Lost machines mask few episodes for good; broken services, and policies that end their
    own sandboxes, most of them."""

    def is_spent(self, masked: int, finished: int, *, at_least: int = BUDGET_FLOOR) -> bool:
        """Whether so many masked episodes are too many of the finished ones.

        Fewer than `at_least` finished ones count as that many.
        """
        return masked > self.max_masked_fraction * max(finished, at_least)
