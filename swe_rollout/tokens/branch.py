"""Branch: one token sequence of an episode's record, which is one sample for a trainer.

An episode is a tree of branches. The main one starts with the task; a sub-agent, or an agent that
drops its history, opens another one with its own prompt. Each sampled token is in exactly one
branch, so training on all branches trains on each token once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Self, TypeVar

# msgspec reads the annotations of these classes at run time.
from swe_rollout.tokens.log import Segment, SegmentKind, TokenLog, nullable
from swe_rollout.tokens.replay import RoutedExperts, SamplingMask

_Value = TypeVar("_Value")


class BranchKind(StrEnum):
    """Why a branch was opened."""

    MAIN = "main"
    """The episode's main branch, which starts with the task."""
    SUB_AGENT = "sub_agent"
    """The branch of a sub-agent, whose parent waits or goes on meanwhile."""
    RESTART = "restart"
    """The parent's agent goes on in it with another history, such as a summary."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A token sequence of an episode, and its origin. All columns have the same length."""

    index: int
    """0 for the main branch; the others are numbered in the order in which they were opened."""
    kind: BranchKind
    parent: int | None
    """The branch that opened this one; None for the main branch."""
    parent_length: int
    """Number of tokens in the parent when it opened this branch."""
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    """Finite where the mask is 1, null elsewhere."""
    segments: tuple[Segment, ...]
    prompt_logprobs: tuple[float | None, ...] = ()
    """If recorded: logprobs of tokens the harness wrote, null elsewhere. Otherwise empty."""
    routed_experts: RoutedExperts | None = None
    sampling_mask: SamplingMask | None = None

    @classmethod
    def of(
        cls,
        log: TokenLog,
        *,
        index: int = 0,
        kind: BranchKind = BranchKind.MAIN,
        parent: int | None = None,
        parent_length: int = 0,
    ) -> Self:
        """Return the stored form of a log, by default as the main branch."""
        prompt_logprobs = log.replay.prompt_logprobs(len(log))
        return cls(
            index,
            kind,
            parent,
            parent_length,
            tuple(log.ids),
            tuple(log.loss_mask.tolist()),
            nullable(log.logprobs),
            log.segments,
            prompt_logprobs=() if prompt_logprobs is None else nullable(prompt_logprobs),
            routed_experts=log.replay.routed_experts(),
            sampling_mask=log.replay.sampling_mask(),
        )

    @property
    def sampled(self) -> int:
        """Number of tokens that the policy sampled."""
        return sum(self.loss_mask)

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first turn."""
        first = self.segments[0] if self.segments else None
        return first.end if first and first.kind is SegmentKind.PROMPT else 0

    @property
    def weight_versions(self) -> tuple[str | None, ...]:
        """The weights that sampled each token, `[n]`; None where unknown or the mask is 0."""
        return self._by_token(lambda segment: segment.weight_version)

    @property
    def temperatures(self) -> tuple[float | None, ...]:
        """The temperature of each sampled token, `[n]`; None where the mask is 0, and everywhere in
        records from before it was recorded.
        """
        return self._by_token(
            lambda segment: segment.sampling.temperature if segment.sampling else None
        )

    def untrained(self, length: int) -> Branch:
        """Return the branch with mask 0 on its first `length` tokens; the ids do not change."""
        cut = min(length, len(self.token_ids))
        runs = (part for run in self.segments for part in _parted(run, cut))
        return replace(
            self,
            loss_mask=(0,) * cut + self.loss_mask[cut:],
            logprobs=(None,) * cut + self.logprobs[cut:],
            segments=tuple(
                replace(run, weight_version=None, sampling=None) if run.end <= cut else run
                for run in runs
            ),
        )

    def _by_token(self, value: Callable[[Segment], _Value]) -> tuple[_Value, ...]:
        runs = ((value(run),) * (run.end - run.start) for run in self.segments)
        return tuple(chain.from_iterable(runs))


def _parted(run: Segment, at: int) -> tuple[Segment, ...]:
    """Return a run, split in two if it is sampled and extends beyond a position."""
    if run.kind is SegmentKind.SAMPLED and run.start < at < run.end:
        return replace(run, end=at), replace(run, start=at)
    return (run,)
