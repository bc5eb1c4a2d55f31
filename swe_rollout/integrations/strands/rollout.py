"""Rollout: the tokens of an episode by the names that trainers over Strands read.

A view of the `TokenLog`: nothing is stored twice. Columns are copies, so each costs O(tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from swe_rollout.errors import UsageError
from swe_rollout.tokens.branch import Branch
from swe_rollout.tokens.log import SegmentKind, TokenLog, nullable

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rollout:
    """What the policy read and sampled, as `model.rollout` and `model.token_manager`."""

    def __init__(self, log: TokenLog) -> None:
        self._log = log

    def __len__(self) -> int:
        return len(self._log)

    def __repr__(self) -> str:
        segments = len(self.segment_info)
        return f"Rollout({len(self)} tokens, {self._log.sampled} sampled, {segments} segments)"

    @property
    def token_ids(self) -> list[int]:
        """All ids, as they were sent and sampled."""
        return self._log.ids

    @property
    def loss_mask(self) -> list[int]:
        """1 for each id that the policy sampled."""
        mask: list[int] = self._log.loss_mask.tolist()
        return mask

    @property
    def logprobs(self) -> list[float]:
        """The logprob of each id in nats; 0.0 where the policy did not sample.

        Prompt logprobs, if recorded, replace 0.0.
        """
        values = self._log.logprobs
        prompt = self._log.replay.prompt_logprobs(len(self._log))
        if prompt is not None:
            values = np.where(np.isnan(values), prompt, values)
        floats: list[float] = np.nan_to_num(values, nan=0.0).tolist()
        return floats

    @property
    def prompt_logprobs(self) -> list[float | None]:
        """Logprobs of ids that were appended after the first turn; None for all others."""
        prompt = self._log.replay.prompt_logprobs(len(self._log))
        return [None] * len(self._log) if prompt is None else list(nullable(prompt))

    @property
    def segments(self) -> list[list[int]]:
        """The ids in runs: the first prompt, a turn, what followed it, a turn, …."""
        ids = self._log.ids
        return [ids[start:end] for _, start, end in self._runs()]

    @property
    def segment_info(self) -> list[tuple[bool, int]]:
        """Whether the policy sampled each run, and the length of the run."""
        return [(sampled, end - start) for sampled, start, end in self._runs()]

    @property
    def initial_prompt(self) -> list[int]:
        """The ids of the first prompt."""
        return self._log.ids[: self.initial_prompt_length]

    @property
    def initial_prompt_length(self) -> int:
        """Number of ids before the first turn."""
        return next((length for _, length in self.segment_info), 0)

    @property
    def weight_versions(self) -> list[str | None]:
        """The version of the weights that sampled each id; None where the policy did not sample."""
        return list(self.branch().weight_versions)

    @property
    def routed_experts(self) -> NDArray[np.int32] | None:
        """Experts of all ids but the last, as int32 `[tokens - 1, layers, topk]`, or None."""
        stored = self._log.replay.routed_experts()
        return None if stored is None else stored.array()

    def decode_routed_experts(self, num_layers: int, top_k: int) -> NDArray[np.int32]:
        """Return `routed_experts`; raises UsageError if there are none, or of another shape."""
        found = self.routed_experts
        if found is None or found.shape[1:] != (num_layers, top_k):
            has = "none" if found is None else f"{found.shape[1:]}"
            raise UsageError(
                f"there are no routed experts of the shape ({num_layers}, {top_k}), but {has}",
                fix="make the model with return_routed_experts=(layers, topk) of the checkpoint",
            )
        return found

    @property
    def image_data(self) -> list[str]:
        """Always empty: messages with images are refused."""
        return []

    def branch(self) -> Branch:
        """Return the episode as a branch of a record, for exports and checks."""
        return Branch.of(self._log)

    def _runs(self) -> Sequence[tuple[bool, int, int]]:
        """Return the runs of one writer: weights that change within a turn don't split them."""
        runs = []
        for sampled, group in groupby(
            self._log.segments, key=lambda segment: segment.kind is SegmentKind.SAMPLED
        ):
            segments = list(group)
            runs.append((sampled, segments[0].start, segments[-1].end))
        return runs
