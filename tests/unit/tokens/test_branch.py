"""Branches as trainers get them: what is not trained on stays in the ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import SamplingUsed, Segment, SegmentKind

USED = SamplingUsed(0.7, 1.0, -1, 0.0)


@st.composite
def branches(draw: st.DrawFn) -> Branch:
    """A prompt, and runs that were sampled or written, in turns."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    segments, mask, start = list[Segment](), list[int](), 0
    for index, size in enumerate(sizes):
        kind = SegmentKind.SAMPLED if index % 2 else SegmentKind.DELTA
        kind = kind if index else SegmentKind.PROMPT
        is_sampled = kind is SegmentKind.SAMPLED
        segments.append(
            Segment(
                kind,
                start,
                start + size,
                index // 2,
                "w1" if is_sampled else None,
                USED if is_sampled else None,
            )
        )
        mask += [int(is_sampled)] * size
        start += size
    logprobs = tuple(-0.5 if bit else None for bit in mask)
    ids = tuple(range(start))
    return Branch(0, BranchKind.MAIN, None, 0, ids, tuple(mask), logprobs, tuple(segments))


@given(branch=branches(), length=st.integers(0, 40))
def test_only_what_comes_after_the_length_is_trained(branch: Branch, length: int) -> None:
    found = branch.untrained(length)
    assert found.token_ids == branch.token_ids
    assert found.prompt_length == branch.prompt_length
    cut = min(length, len(branch.token_ids))
    assert not any(found.loss_mask[:cut])
    assert found.loss_mask[cut:] == branch.loss_mask[cut:]
    columns = (found.logprobs, found.weight_versions, found.temperatures)
    for column in columns:
        assert len(column) == len(branch.token_ids)
        assert all((value is not None) == bool(bit) for value, bit in zip(column, found.loss_mask))  # noqa: B905
    position = 0
    for segment in found.segments:
        assert segment.start == position < segment.end
        position = segment.end
    assert position == len(branch.token_ids)


@given(branch=branches())
def test_nothing_inherited_changes_nothing(branch: Branch) -> None:
    assert branch.untrained(0) == branch
