"""The ratio test passes what was sampled, and fails every way of getting a column wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swe_rollout.testing.ratio import MAX_ABS, Logits, RatioRow, check_ratio, forced

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCABULARY = 23


def model(seed: int) -> Logits:
    """A causal model without parameters to speak of: what follows depends on all ids so far."""

    @lru_cache(1000)
    def row(state: int) -> NDArray[np.float64]:
        return np.random.default_rng(state).normal(size=VOCABULARY) * 2

    def logits(ids: Sequence[int]) -> NDArray[np.float32]:
        state, rows = seed, []
        for each in ids:
            state = (state * 6364136223846793005 + each + 1442695040888963407) % 2**64
            rows.append(row(state))
        return np.array(rows, dtype=np.float32)

    return logits


OLD, NEW = model(1), model(2)
TEACHER = forced({"old": OLD, "new": NEW})


def sampled(seed: int, *, runs: int = 3) -> RatioRow:
    """A prompt and turns with results between them; a turn begins under old weights, ends under
    new ones, and each has a temperature of its own."""
    random = np.random.default_rng(seed)
    ids = random.integers(VOCABULARY, size=int(random.integers(1, 6))).tolist()
    start = len(ids)
    mask: list[int] = []
    logprobs: list[float] = []
    temperatures: list[float] = []
    versions: list[str | None] = []
    for _ in range(runs):
        temperature = float(random.uniform(0.3, 1.7))
        for position in range(6):
            version = "old" if position < 3 else "new"
            row = (OLD if version == "old" else NEW)(ids)[-1].astype(float) / temperature
            row -= np.log(np.exp(row).sum())
            drawn = int(random.choice(VOCABULARY, p=np.exp(row) / np.exp(row).sum()))
            ids.append(drawn)
            mask.append(1)
            # As logs keep them.
            logprobs.append(float(np.float32(row[drawn])))
            temperatures.append(temperature)
            versions.append(version)
        for each in random.integers(VOCABULARY, size=4).tolist():
            ids.append(each)
            mask.append(0)
            logprobs.append(0.0)
            temperatures.append(1.0)
            versions.append(None)
    return RatioRow(ids, start, mask, logprobs, temperatures, versions)


ROW = sampled(0)


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_what_was_sampled_passes(seed: int) -> None:
    report = check_ratio([sampled(seed), sampled(seed + 1)], TEACHER).require()

    assert report.tokens == 2 * 3 * 6
    assert report.max_abs < 1e-5


def shifted_logprobs(row: RatioRow) -> RatioRow:
    return replace(row, logprobs=[*row.logprobs[1:], 0.0])


def shifted_mask(row: RatioRow) -> RatioRow:
    return replace(row, loss_mask=[*row.loss_mask[1:], 0])


def without_mask(row: RatioRow) -> RatioRow:
    return replace(row, loss_mask=[1] * len(row.loss_mask))


def one_more_trained(row: RatioRow) -> RatioRow:
    first = list(row.loss_mask).index(0)
    return replace(
        row, loss_mask=[int(bool(each) or at == first) for at, each in enumerate(row.loss_mask)]
    )


def boundary_before(row: RatioRow) -> RatioRow:
    """The prompt lost its last id to nobody: everything behind it is one too early."""
    return replace(row, token_ids=[*row.token_ids[: row.response_start - 1],
                                   *row.token_ids[row.response_start :], 0])  # fmt: skip


def boundary_behind(row: RatioRow) -> RatioRow:
    """The response begins one id late, and its columns do not."""
    return RatioRow(
        row.token_ids,
        row.response_start + 1,
        row.loss_mask[:-1],
        row.logprobs[:-1],
        row.temperatures and row.temperatures[:-1],
        row.weight_versions and row.weight_versions[:-1],
    )


def without_temperatures(row: RatioRow) -> RatioRow:
    return replace(row, temperatures=None)


def one_version(row: RatioRow) -> RatioRow:
    return replace(row, weight_versions=["old" if each else None for each in row.loss_mask])


def token_of_another(row: RatioRow) -> RatioRow:
    """One sampled id was tokenised again, as another."""
    ids = list(row.token_ids)
    ids[row.response_start + 1] = (ids[row.response_start + 1] + 1) % VOCABULARY
    return replace(row, token_ids=ids)


@pytest.mark.parametrize(
    "mutate",
    [
        shifted_logprobs,
        shifted_mask,
        without_mask,
        one_more_trained,
        boundary_before,
        boundary_behind,
        without_temperatures,
        one_version,
        token_of_another,
    ],
)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_a_wrong_column_fails(mutate: Callable[[RatioRow], RatioRow], seed: int) -> None:
    row = sampled(seed)
    mutated = mutate(row)
    assume(list(mutated.token_ids) != list(row.token_ids) or mutated != row)
    try:
        report = check_ratio([mutated], TEACHER)
    except KeyError:
        # A version is none of the teacher's: a token of the harness is trained.
        return

    assert not report.passes


def test_one_wrong_token_of_many_fails_and_is_named() -> None:
    logprobs = list(ROW.logprobs)
    logprobs[11] += 2 * MAX_ABS

    report = check_ratio([sampled(1), replace(ROW, logprobs=logprobs)], TEACHER)

    assert report.worst == (1, 11)
    with pytest.raises(AssertionError, match=r"worst=\(1, 11\)"):
        report.require()


def test_the_divergence_is_the_mean_over_all_trained_tokens() -> None:
    """`r - 1 - log r`; half the tokens are off."""
    off = 10 * MAX_ABS
    row = replace(ROW, logprobs=[each - math.log1p(off) for each in ROW.logprobs])

    report = check_ratio([row, ROW], TEACHER)

    assert report.mean_k3 == pytest.approx((off - math.log1p(off)) / 2, rel=0.01)
    assert report.max_abs == pytest.approx(off, rel=0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_no_number_fails(bad: float) -> None:
    logprobs = list(ROW.logprobs)
    logprobs[1] = bad

    report = check_ratio([replace(ROW, logprobs=logprobs)], TEACHER)

    assert not report.passes
    assert report.max_abs >= 1


def test_what_trains_nothing_does_not_pass() -> None:
    assert not check_ratio([], TEACHER).passes
    assert not check_ratio([replace(ROW, loss_mask=[0] * len(ROW.loss_mask))], TEACHER).passes


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="has columns of"):
        replace(ROW, logprobs=ROW.logprobs[1:])
    with pytest.raises(ValueError, match="has columns of"):
        RatioRow([1, 2], 0, [1, 1], [0.0, 0.0])
    with pytest.raises(ValueError, match="the teacher returned"):
        check_ratio([ROW], lambda row: row.logprobs[1:])


def test_an_only_model_reads_every_version() -> None:
    row = replace(ROW, weight_versions=["a" if each else None for each in ROW.loss_mask])
    old = [int(version == "old") for version in ROW.weight_versions or ()]

    check_ratio([replace(row, loss_mask=old)], forced({"default": OLD})).require()
