"""Replay data of records, as returned by a real engine and checked against it."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.records import check
from sglang.episodes import EpisodeRunner, write
from sglang.served import Served, teach
from sglang.wire_tap import WireTap
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.tokens.replay import Recording

pytestmark = pytest.mark.sglang

LIMITS = Limits(
    turns=6, context_tokens=8000, max_new_tokens=48, cut_turns=CutTurns.ANSWER, format_errors=7
)
TOP_K = 5
TOLERANCE = 1e-4


async def test_logprobs_of_what_the_harness_wrote_are_the_models_own(
    served: Served, tmp_path: Path
) -> None:
    if served.model is None:
        pytest.skip("needs the checkpoint that is served: set SGLANG_MODEL to its folder")
    pool = EnginePool(SglangPolicy(url=served.url), vocab_size=served.renderer.vocab_size)
    runner = EpisodeRunner(pool, served.renderer, LIMITS, recording=Recording(prompt_logprobs=True))
    with WireTap().listening() as tap:
        record = await runner.episode(0, sampling=Sampling(temperature=0.5))
    await pool.aclose()

    path = write(record, tmp_path)
    check(json.loads(path.read_bytes()))
    taught = teach([path], {"default": served.model}, temperature=0.5)
    assert taught["max_difference"] <= TOLERANCE
    written = sum(
        segment.end - segment.start
        for before, segment in pairwise(record.segments)
        if segment.kind != "sampled" and before.kind == "sampled"
    )
    assert written
    assert taught["prompt_tokens"] == written
    assert taught["prompt_max_difference"] <= TOLERANCE
    # They are requested from the last response on, so what is before it stays cached.
    for call, following in pairwise(tap.calls):
        assert following.response is not None
        cached = following.response["meta_info"]["cached_tokens"]
        assert cached >= len(call.ids) - 1


async def test_the_ids_that_could_have_been_sampled_are_kept_for_each_that_was(
    served: Served, tmp_path: Path
) -> None:
    pool = EnginePool(SglangPolicy(url=served.url), vocab_size=served.renderer.vocab_size)
    runner = EpisodeRunner(pool, served.renderer, LIMITS, recording=Recording(sampling_mask=True))
    record = await runner.episode(1, sampling=Sampling(temperature=1.0, top_k=TOP_K))
    await pool.aclose()

    check(json.loads(write(record, tmp_path).read_bytes()))
    mask = record.sampling_mask
    assert mask is not None
    sampled = [
        (token, logprob)
        for token, logprob in zip(record.token_ids, record.logprobs, strict=True)
        if logprob is not None
    ]
    assert len(mask.offsets) == len(sampled) + 1
    for (token, logprob), (start, end), among in zip(
        sampled, pairwise(mask.offsets), mask.logprobs, strict=True
    ):
        kept = mask.ids[start:end]
        assert token in kept
        assert 1 <= len(set(kept)) == len(kept) <= TOP_K
        # Dropping ids makes the kept ones more likely, never less.
        assert logprob - TOLERANCE <= among <= TOLERANCE
        assert math.isfinite(among)
