"""Contract tests for an engine: subclass `EngineContract` and return yours.

    class TestMyEngine(EngineContract):
        @pytest.fixture
        async def engine(self):
            engine = MyEngine(url="http://127.0.0.1:8000")
            yield engine
            await engine.aclose()

        def prompt(self) -> list[int]:
            return tokenizer.encode("def add(a, b):")

Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from swe_rollout.engine.base import GenerateRequest, TokenEngine
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason

_ROUNDING = 1e-4
"""The logprob of a certain token may be this far above 0."""


class EngineContract:
    """The contract of `TokenEngine`. Override the fixture `engine` and `prompt`."""

    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a turn, such as the model's end of turn."""

    @pytest.fixture
    def engine(self) -> TokenEngine:
        """A connected engine."""
        raise NotImplementedError("override the fixture `engine`")

    def prompt(self) -> Sequence[int]:
        """Return the ids of a prompt that the model continues with at least one token."""
        raise NotImplementedError("override `prompt`")

    def episode(self) -> EpisodeId:
        """Return the episode that the calls belong to."""
        return EpisodeId("contract", "task", 0)

    def request(self, *, max_new_tokens: int = 16) -> GenerateRequest:
        """Return the first request of an episode."""
        return GenerateRequest(
            episode=self.episode(),
            turn=0,
            input_ids=InputIds.of(list(self.prompt())),
            max_new_tokens=max_new_tokens,
            sampling=Sampling(temperature=1.0, seed=1),
            stop_token_ids=self.stop_token_ids,
        )

    async def test_it_is_a_token_engine(self, engine: TokenEngine) -> None:
        assert isinstance(engine, TokenEngine)

    async def test_it_names_its_model(self, engine: TokenEngine) -> None:
        info = await engine.info()
        assert info.model
        assert info.context_tokens is None or info.context_tokens > 0
        assert info.vocab_size is None or info.vocab_size > max(self.prompt())

    async def test_each_sampled_id_has_a_finite_logprob(self, engine: TokenEngine) -> None:
        generation = await engine.generate(self.request())
        assert generation.token_ids, "the prompt must lead to at least one token"
        assert len(generation.logprobs) == len(generation.token_ids)
        assert all(math.isfinite(each) and each <= _ROUNDING for each in generation.logprobs)

    async def test_ids_are_in_the_vocabulary(self, engine: TokenEngine) -> None:
        info, generation = await engine.info(), await engine.generate(self.request())
        assert all(isinstance(each, int) and each >= 0 for each in generation.token_ids)
        if info.vocab_size is not None:
            assert max(generation.token_ids) < info.vocab_size

    async def test_it_samples_no_more_than_it_may(self, engine: TokenEngine) -> None:
        generation = await engine.generate(self.request(max_new_tokens=1))
        assert len(generation.token_ids) <= 1
        if not set(generation.token_ids) & set(self.stop_token_ids):
            assert generation.finish_reason is not FinishReason.STOP

    async def test_it_counts_the_prompt_as_it_was_sent(self, engine: TokenEngine) -> None:
        generation = await engine.generate(self.request())
        assert generation.prompt_tokens == len(self.prompt())
        assert 0 <= generation.cached_tokens <= generation.prompt_tokens

    async def test_weight_versions_cover_the_turn_without_gaps(self, engine: TokenEngine) -> None:
        generation = await engine.generate(self.request())
        position = 0
        for span in generation.weight_versions:
            assert span.start == position
            assert span.end > span.start
            position = span.end
        assert position in (0, len(generation.token_ids))

    async def test_a_cancelled_call_leaves_the_engine_usable(self, engine: TokenEngine) -> None:
        call = asyncio.ensure_future(engine.generate(self.request(max_new_tokens=64)))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await engine.generate(self.request())).token_ids

    async def test_releasing_an_episode_twice_has_no_effect(self, engine: TokenEngine) -> None:
        engine.release(self.episode())
        engine.release(self.episode())
        assert (await engine.generate(self.request())).token_ids
