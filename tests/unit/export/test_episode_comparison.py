"""Two episodes compared: where they part, and what came of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.export.episode_comparison import (
    TokenDifference,
    compare_episodes,
    first_turn,
)
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus
from unit.export.export_parts import failed, trajectory


def with_text(found: Trajectory, index: int, text: str) -> Trajectory:
    turns = list(found.turns)
    turns[index] = replace(turns[index], text=text)
    return replace(found, turns=tuple(turns))


def test_an_episode_does_not_differ_from_itself() -> None:
    found = compare_episodes(trajectory(), trajectory())

    assert (found.first_turn, found.first_token, found.tests, found.patch_diff) == (
        None,
        None,
        (),
        (),
    )
    assert not any(fact.differs for fact in found.facts)


def test_the_first_turn_is_that_whose_sampled_text_differs() -> None:
    one = trajectory()
    other = with_text(with_text(one, 1, "Two."), 2, "Three.")

    difference = compare_episodes(one, other).first_turn
    assert difference is not None
    assert difference.index == 1
    assert first_turn(one, replace(one, turns=one.turns[:2])) == 2


def test_the_first_token_tells_who_wrote_it() -> None:
    one = trajectory()
    sampled = one.loss_mask.index(1)
    ids = list(one.token_ids)
    ids[sampled] += 1
    assert compare_episodes(one, replace(one, token_ids=tuple(ids))).first_token == (
        TokenDifference(sampled, one.token_ids[sampled], ids[sampled], sampled=True)
    )
    prompt = (999, *one.token_ids[1:])
    assert compare_episodes(one, replace(one, token_ids=prompt)).first_token == (
        TokenDifference(0, one.token_ids[0], 999, sampled=False)
    )
    shorter = replace(one, token_ids=one.token_ids[:-1])
    found = compare_episodes(one, shorter).first_token
    assert found is not None
    assert (found.index, found.after) == (len(one.token_ids) - 1, None)


def test_tests_and_patches_that_differ_are_shown() -> None:
    one = trajectory()
    report = TestReport({"t": TestStatus.FAILED}, {"u": TestStatus.PASSED})
    verdict = Verdict(VerdictStatus.UNRESOLVED, report)
    other = replace(one, verdict=verdict, patch=one.patch.replace("+b", "+c"))

    found = compare_episodes(one, other)

    assert [(each.name, each.before, each.after) for each in found.tests] == [
        ("t", "PASSED", "FAILED")
    ]
    assert "-+b" in found.patch_diff
    assert "++c" in found.patch_diff
    assert {each.name for each in found.facts if each.differs} == {"verdict"}


def test_an_episode_that_failed_can_be_compared() -> None:
    one = trajectory()
    facts = {each.name: each.after for each in compare_episodes(one, failed(one)).facts}
    assert facts["failure"] == "sandbox: SandboxError"
    assert (facts["verdict"], facts["reward"], facts["patch"]) == ("–", "–", "empty")


def test_long_patches_are_not_compared_line_by_line() -> None:
    one = replace(trajectory(), patch="+a\n" * 50_000)
    other = replace(one, patch="+a\n+b\n" * 25_000)
    assert compare_episodes(one, other).patch_diff == ()


@given(one=st.lists(st.integers(0, 3)), other=st.lists(st.integers(0, 3)))
def test_tokens_are_the_same_up_to_the_first_difference(one: list[int], other: list[int]) -> None:
    sides = [
        replace(trajectory(), token_ids=tuple(ids), loss_mask=(0,) * len(ids))
        for ids in (one, other)
    ]
    found = compare_episodes(*sides).first_token
    if found is None:
        assert one == other
    else:
        assert one[: found.index] == other[: found.index]
        assert one[found.index : found.index + 1] != other[found.index : found.index + 1]
