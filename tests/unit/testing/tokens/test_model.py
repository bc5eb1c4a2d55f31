"""Segmenter: other segmentations keep the text and the control tokens."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.testing.tokens.model import ModelUnderTest, Segmenter

RENDERER = Renderer.load(str(tokenizer_path()))
MODEL = ModelUnderTest(RENDERER, quick=True)


@given(text=st.text(max_size=80), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_resegmenting_keeps_the_text_and_control_tokens(text: str, seed: int) -> None:
    ids = MODEL.policy.encode(text.encode(errors="replace").decode())
    rng = random.Random(seed)

    for resegmented in (
        MODEL.segmenter.noisy(ids, 0.5, rng),
        MODEL.segmenter.random_cuts(ids, rng),
    ):
        assert RENDERER.decode(resegmented) == RENDERER.decode(ids)
        assert [i for i in resegmented if i in RENDERER.controls] == [
            i for i in ids if i in RENDERER.controls
        ]


def test_noise_splits_the_requested_share_of_tokens() -> None:
    ids = MODEL.policy.encode("the function returns another iterator of arguments " * 40)

    noisy = MODEL.segmenter.noisy(ids, 0.1, random.Random(0))

    assert MODEL.segmenter.noisy(ids, 0, random.Random(0)) == list(ids)
    assert 0.03 < (len(noisy) - len(ids)) / len(ids) < 0.2


class _Pieces:
    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:  # noqa: FBT001 - its own form
        assert not with_added_tokens
        return {"ab": 0, "a": 1, "b": 2, "<0x41>": 3, "zab": 4, "<end>": 5}


def test_a_token_that_can_not_be_split_stays() -> None:
    segmenter = Segmenter(_Pieces(), controls={5})
    rng = random.Random(0)

    assert segmenter.noisy([4, 3, 5], 1.0, rng) == [4, 3, 5]
    assert segmenter.random_cuts([3, 5], rng) == [3, 5]
