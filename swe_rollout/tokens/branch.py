"""Branch: one token sequence of an episode in its record, a sample for a trainer.

An episode is a tree of branches. The main one begins with the task; a sub-agent, or an agent that
drops its history, opens a further one with a prompt of its own. Each sampled token stands in
exactly one branch, so training on all branches trains on each token once.
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
    """The episode's own: it begins with the task."""
    SUB_AGENT = "sub_agent"
    """A sub-agent works in it while its parent waits or goes on."""
    RESTART = "restart"
    """The agent of the parent goes on here with another history, such as a summary."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A token sequence of an episode, and where it came from. All columns are equally long."""

    index: int
    """0 is the main branch; the others count up in the order in which they were opened."""
    kind: BranchKind
    parent: int | None
    """The branch that opened this one; None for the main branch."""
    parent_length: int
    """Tokens of the parent when it opened this branch."""
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
        """Return a log as it is stored, by default as the main branch."""
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
        """Number of tokens the policy sampled in it."""
        return sum(self.loss_mask)

    @property
    def prompt_length(self) -> int:
        """Tokens in front of the first turn."""
        first = self.segments[0] if self.segments else None
        return first.end if first and first.kind is SegmentKind.PROMPT else 0

    @property
    def weight_versions(self) -> tuple[str | None, ...]:
        """The weights that sampled each token, `[n]`; None where unknown or the mask is 0."""
        return self._by_token(lambda segment: segment.weight_version)

    @property
    def temperatures(self) -> tuple[float | None, ...]:
        """The temperature of each sampled token, `[n]`; None where the mask is 0, and throughout
        records from before it was recorded.
        """
        return self._by_token(
            lambda segment: segment.sampling.temperature if segment.sampling else None
        )

    def untrained(self, length: int) -> Branch:
        """Return it with nothing to train on in its first `length` tokens; the ids stay."""
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
    """Return a run, or the parts of a sampled one that goes beyond a position."""
    if run.kind is SegmentKind.SAMPLED and run.start < at < run.end:
        return replace(run, end=at), replace(run, start=at)
    return (run,)
