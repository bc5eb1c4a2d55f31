"""Drawing a token: what may be drawn, how often, its logprob, and its repetition by a seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from swe_rollout.engine.transformers.scheduler import LogitsError, TokenSampler, log_softmax
from swe_rollout.spec.policy import Sampling

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))
rows = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40).map(
    lambda row: np.array(row, dtype=np.float32)
)
samplings = st.builds(
    Sampling,
    temperature=st.one_of(st.just(0.0), st.floats(1e-300, 100)),
    top_p=st.floats(0.01, 1),
    top_k=st.one_of(st.just(-1), st.integers(1, 50)),
    min_p=st.floats(0, 1),
    seed=st.integers(-(2**53), 2**53),
)


def drawn(sampling: Sampling, count: int = 4000) -> NDArray[np.float64]:
    """Shares of the ids among many draws."""
    sampler = TokenSampler(sampling)
    ids = [sampler.draw(LOGITS, position).token_id for position in range(count)]
    return np.bincount(ids, minlength=len(LOGITS)) / count


@given(rows, samplings, st.integers(0, 2**31))
def test_every_draw_has_the_logprob_of_the_scaled_distribution(
    row: NDArray[np.float32], sampling: Sampling, position: int
) -> None:
    draw = TokenSampler(sampling).draw(row, position)
    assert 0 <= draw.token_id < len(row)
    assert math.isfinite(draw.logprob)
    assert draw.logprob <= 0 or draw.logprob == pytest.approx(0, abs=1e-12)
    assert draw.logprob == log_softmax(row, sampling.temperature)[draw.token_id]


@given(rows, samplings, st.integers(0, 2**31))
def test_a_seed_repeats_its_draws(
    row: NDArray[np.float32], sampling: Sampling, position: int
) -> None:
    once, again = (TokenSampler(sampling).draw(row, position) for _ in range(2))
    assert once == again


def test_ids_are_drawn_as_often_as_they_are_likely() -> None:
    assert drawn(Sampling(seed=1)) == pytest.approx([0.5, 0.25, 0.15, 0.1], abs=0.03)
    flat = np.sqrt([0.5, 0.25, 0.15, 0.1])
    assert drawn(Sampling(seed=1, temperature=2.0)) == pytest.approx(flat / flat.sum(), abs=0.03)


def test_other_positions_and_seeds_draw_others() -> None:
    draws = {
        tuple(TokenSampler(Sampling(seed=seed)).draw(LOGITS, at).token_id for at in range(64))
        for seed in range(8)
    }
    assert len(draws) == 8
    assert all(len(set(draw)) > 1 for draw in draws)


def test_without_a_seed_nothing_is_repeated() -> None:
    def ids() -> list[int]:
        sampler = TokenSampler(Sampling())
        return [sampler.draw(LOGITS, position).token_id for position in range(128)]

    assert ids() != ids()


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(seed=1), {0, 1, 2, 3}),
        (Sampling(seed=1, top_k=2), {0, 1}),
        (Sampling(seed=1, top_k=99), {0, 1, 2, 3}),
        (Sampling(seed=1, top_p=0.74), {0, 1}),
        (Sampling(seed=1, top_p=0.76), {0, 1, 2}),
        (Sampling(seed=1, top_p=0.01), {0}),
        (Sampling(seed=1, min_p=0.29), {0, 1, 2}),
        (Sampling(seed=1, min_p=1.0), {0}),
        (Sampling(seed=1, top_k=3, top_p=0.6, min_p=0.4), {0, 1}),
        (Sampling(seed=1, temperature=0), {0}),
    ],
)
def test_only_what_is_kept_is_drawn(sampling: Sampling, allowed: set[int]) -> None:
    assert set(np.flatnonzero(drawn(sampling, 1000))) == allowed


def test_what_is_kept_has_the_logprob_of_the_whole_distribution() -> None:
    draw = TokenSampler(Sampling(top_k=1)).draw(LOGITS, 0)
    assert draw.logprob == pytest.approx(math.log(0.5), abs=1e-6)


def test_temperature_0_has_the_logprob_of_temperature_1() -> None:
    draw = TokenSampler(Sampling(temperature=0)).draw(LOGITS, 0)
    assert draw.logprob == pytest.approx(math.log(0.5), abs=1e-6)


def test_an_id_that_the_model_masks_is_never_drawn() -> None:
    row = np.array([-np.inf, 0.0, -np.inf], dtype=np.float32)
    assert {TokenSampler(Sampling()).draw(row, at).token_id for at in range(99)} == {1}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    with pytest.raises(LogitsError):
        TokenSampler(Sampling()).draw(np.array([0.0, bad], dtype=np.float32), 0)
    with pytest.raises(LogitsError):
        TokenSampler(Sampling()).draw(np.array([-np.inf, -np.inf], dtype=np.float32), 0)
