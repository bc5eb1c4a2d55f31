"""How patches are graded. The string under a field is its documentation everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from swe_rollout.spec.bounds import Seconds
from swe_rollout.spec.model import Model, ShortUse, Use, unset
from swe_rollout.spec.reward_terms import OPTIONS, JudgeOptions, read_options

_WHOLE: Final = frozenset({"resolved", "reward_file", "length", "turns", "format", "judge"})
"""Reward terms that look at no single test."""


class RewardUse(ShortUse):
    """A reward term: its name, or `{use: module:attr, with: {…}, weight: 0.5}`."""

    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Multiplies the term's score; the reward is the sum of all terms."""

    @model_validator(mode="after")
    def _has_good_options(self) -> Self:
        if (model := OPTIONS.get(self.use)) is not None:
            try:
                read_options(model, self.with_)
            except ValueError as error:
                raise PydanticCustomError(
                    "reward_options", "{why}", {"why": f"{self.use}: {error}"}
                ) from error
        return self

    @property
    def chat(self) -> Use | None:
        """Return the user's chat engine that judges, or None if the term has no such judge."""
        return read_options(JudgeOptions, self.with_).chat if self.use == "judge" else None


class Integrity(StrEnum):
    """How to treat a verdict if the patch tampers with its tests."""

    STRICT = "strict"
    """The verdict is `tampered`: not resolved, and reward 0."""
    RECORD = "record"
    """The verdict stays resolved, and the findings are recorded."""


class Unproven(StrEnum):
    """How to treat a resolved verdict if the task's tests can't tell a fix from a forgery."""

    ACCEPT = "accept"
    """The verdict counts, and the record says why it is unproven."""
    MASK = "mask"
    """The episode is masked, and earns no reward."""


class GradingSpec(Model):
    """How patches are graded."""

    reward: Annotated[
        tuple[RewardUse, ...],
        Field(
            min_length=1,
            max_length=16,
            exclude_if=lambda terms: terms == (RewardUse(use="resolved"),),
        ),
    ] = (RewardUse(use="resolved"),)
    """Terms of the reward (docs/reference/rewards.md): `resolved`, 1 when the tests resolve the
    task, else 0; `fraction`, `reward_file`, `length`, `turns`, `format`, `judge`; or your own."""
    log_parser: Use | None = unset()
    """The parser of the test log; by default the one that each instance names."""
    integrity: Annotated[
        Integrity, Field(exclude_if=lambda integrity: integrity is Integrity.STRICT)
    ] = Integrity.STRICT
    """With `strict`, a patch whose tests pass only because it tampers with them gets the verdict
    `tampered` and reward 0. With `record`, the findings are recorded and the verdict stands."""
    unproven: Annotated[
        Unproven, Field(exclude_if=lambda unproven: unproven is Unproven.ACCEPT)
    ] = Unproven.ACCEPT
    """What becomes of a resolved verdict of a task whose tests a forgery could pass, too
    (docs/explanation/grading.md): `accept` it, or `mask` the episode."""
    timeout_seconds: Seconds | None = None
    """Time limit for the test run; by default the instance's own."""
    enabled: bool = True
    """If false, nothing is graded and no reward is recorded."""

    @property
    def credits_single_tests(self) -> bool:
        """Whether a reward term may look at single tests, as those of users may."""
        return any(term.use not in _WHOLE for term in self.reward)
