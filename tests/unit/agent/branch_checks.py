"""Shared by tests of agent programs: what holds for the branches of every episode."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.types.turn import Turn
from unit.agent.agent_parts import Played, Player


class Branched(Protocol):
    """What has turns in branches."""

    @property
    def episode_turns(self) -> Sequence[Turn]: ...

    def branches(self) -> tuple[Branch, ...]: ...


def assert_branches_hold(played: Played, engine: Player) -> None:
    """Each sampled token stands in one branch, and each request was its branch so far."""
    assert_hold(played.context, engine)


def assert_hold(played: Branched, engine: Player) -> None:
    """Check the same of whatever has branches."""
    branches, turns = played.branches(), played.episode_turns
    assert [branch.index for branch in branches] == list(range(len(branches)))
    assert [turn.index for turn in turns] == list(range(len(turns)))
    for branch in branches:
        size = len(branch.token_ids)
        assert size == len(branch.loss_mask) == len(branch.logprobs) == branch.segments[-1].end
        sampled = [p is not None and math.isfinite(p) for p in branch.logprobs]
        assert sampled == [mask == 1 for mask in branch.loss_mask]
        assert (branch.parent is None) == (branch.kind is BranchKind.MAIN) == (branch.index == 0)
        if branch.parent is not None:
            assert branch.parent < branch.index
            assert 0 < branch.parent_length <= len(branches[branch.parent].token_ids)
        covered = np.zeros(size, dtype=np.uint8)
        for turn in (turn for turn in turns if turn.branch == branch.index):
            start = turn.request.length
            ids = np.array(branch.token_ids[:start], dtype="<i4")
            assert turn.request.sha256 == hashlib.sha256(ids.tobytes()).hexdigest()
            assert not covered[start : start + turn.completion_tokens].any()
            covered[start : start + turn.completion_tokens] = 1
        assert covered.tolist() == list(branch.loss_mask)
    trained = sum(branch.sampled for branch in branches)
    assert trained == sum(turn.completion_tokens for turn in turns)
    assert trained == engine.sampled
    for request in engine.requests:
        sent = tuple(request.input_ids.tolist())
        assert branches[request.branch].token_ids[: len(sent)] == sent
