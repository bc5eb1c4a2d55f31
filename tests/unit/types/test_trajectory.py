"""What a trajectory says of itself."""

from __future__ import annotations

from dataclasses import replace

from checkout import ROOT
from swe_rollout.types.trajectory_json import from_json

BRANCHED = from_json((ROOT / "tests" / "golden" / "trajectory-v2.json").read_bytes())


def test_counts_are_over_all_branches() -> None:
    alone = replace(BRANCHED, branches=())
    assert [branch.index for branch in BRANCHED.samples] == [0, 1]
    assert BRANCHED.main_branch.token_ids == BRANCHED.token_ids
    assert (BRANCHED.token_count, BRANCHED.sampled_count) == (10, 4)
    assert (alone.token_count, alone.sampled_count) == (7, 3)
    assert "10 tokens in 2 branches" in repr(BRANCHED)
