"""Whatever the cache holds, drops or resumes, and whoever is cancelled: the same tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.engine.transformers.engine import TransformersEngine
from swe_rollout.engine.transformers.scheduler import TokenSampler
from swe_rollout.spec.policy import Sampling
from unit.engine.transformers.test_engine import ArithmeticModel, logits_after, request

SAMPLING = Sampling(seed=3, top_p=0.9)


@dataclass(frozen=True)
class Step:
    """One call of an episode: ids of the harness, how many to sample, and whether it is ended."""

    added: tuple[int, ...]
    tokens: int
    is_cancelled: bool = False
    is_released: bool = False


steps = st.builds(
    Step,
    st.lists(st.integers(0, 49), min_size=1, max_size=30).map(tuple),
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
)


def expected(ids: list[int], count: int) -> list[int]:
    """What the model says without any engine."""
    sampler, ids, start = TokenSampler(SAMPLING), list(ids), len(ids)
    for _ in range(count):
        ids.append(sampler.draw(logits_after(ids), len(ids)).token_id)
    return ids[start:]


async def play(engine: TransformersEngine, sample: int, episode: list[Step]) -> None:
    ids: list[int] = []
    for step in episode:
        ids += step.added
        asked = replace(request(*ids, sample=sample, tokens=step.tokens), sampling=SAMPLING)
        if step.is_cancelled:
            call = asyncio.ensure_future(engine.generate(asked))
            await asyncio.sleep(0.0005)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        if step.is_released:
            engine.release(asked.episode)
        found = await engine.generate(asked)
        assert list(found.token_ids) == expected(ids, step.tokens)
        assert found.cached_tokens < len(ids)
        ids += found.token_ids


@settings(max_examples=25)
@given(st.lists(st.lists(steps, max_size=4), min_size=1, max_size=4), st.integers(16, 300))
def test_the_tokens_are_those_of_the_model(episodes: list[list[Step]], cache_tokens: int) -> None:
    async def run() -> None:
        engine = TransformersEngine(ArithmeticModel(), cache_tokens=cache_tokens)
        try:
            await asyncio.gather(
                *(play(engine, sample, episode) for sample, episode in enumerate(episodes))
            )
            assert engine._scheduler.cached_tokens <= max(cache_tokens, 250)
        finally:
            await engine.aclose()

    asyncio.run(run())
