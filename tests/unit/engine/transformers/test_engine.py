"""The engine over a model of arithmetic: what it reads is checked id by id, without torch."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import BadRequestError, ContextOverflowError
from swe_rollout.engine.transformers.engine import TransformersEngine
from swe_rollout.engine.transformers.model import LocalModel, LocalReader
from swe_rollout.engine.transformers.scheduler import PREFILL_TOKENS, log_softmax
from swe_rollout.errors import EngineError, UnreachableError
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.extensions.engines import EngineContract
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason
from unit.engine import engine_parts
from waits import until

VOCAB = 50
END = 49


def logits_after(ids: list[int]) -> NDArray[np.float32]:
    """The model: logits that depend on every id so far."""
    digest = hashlib.sha256(np.array(ids, dtype=np.int32).tobytes()).digest()
    return np.random.default_rng(list(digest)).normal(size=VOCAB).astype(np.float32)


class ArithmeticModel(LocalModel):
    """Counts what is read, and can be held up or broken."""

    def __init__(self) -> None:
        self.name, self.vocab_size, self.weight_version = "arithmetic", VOCAB, "v1"
        self.context_tokens = 2000
        self.reads: list[tuple[int, int]] = []
        """For each read, how many ids it had before, and how many it read."""
        self.may_go = threading.Event()
        self.may_go.set()
        self.error: Exception | None = None

    def reader(self) -> ArithmeticReader:
        return ArithmeticReader(self)


class ArithmeticReader(LocalReader):
    def __init__(self, model: ArithmeticModel) -> None:
        self._arithmetic = model
        self._ids: list[int] = []

    def read(self, ids: NDArray[np.int32], /) -> NDArray[np.float32]:
        model = self._arithmetic
        model.may_go.wait(10)
        if model.error is not None:
            raise model.error
        assert len(ids)
        model.reads.append((len(self._ids), len(ids)))
        self._ids += ids.tolist()
        return logits_after(self._ids)


@pytest.fixture
def model() -> ArithmeticModel:
    return ArithmeticModel()


@pytest.fixture
async def engine(model: ArithmeticModel) -> AsyncIterator[TransformersEngine]:
    engine = TransformersEngine(model, cache_tokens=4000, tokenizer="there")
    yield engine
    model.may_go.set()
    await engine.aclose()


def request(
    *ids: int, sample: int = 0, tokens: int = 20, sampling: Sampling | None = None
) -> GenerateRequest:
    return engine_parts.request(
        *ids,
        sample=sample,
        max_new_tokens=tokens,
        sampling=sampling or Sampling(seed=7),
        stop_token_ids=(),
    )


class TestContract(EngineContract):
    """What every engine does."""

    @pytest.fixture
    async def engine(self) -> AsyncIterator[TransformersEngine]:
        engine = TransformersEngine(ArithmeticModel(), cache_tokens=4000)
        yield engine
        await engine.aclose()

    def prompt(self) -> list[int]:
        return [4, 5, 6]


async def test_logprobs_are_those_of_the_model(engine: TransformersEngine) -> None:
    ids = [1, 2, 3]
    found = await engine.generate(request(*ids, sampling=Sampling(temperature=0.7, top_k=5)))
    for token_id, logprob in zip(found.token_ids, found.logprobs, strict=True):
        assert logprob == log_softmax(logits_after(ids), 0.7)[token_id]
        ids.append(token_id)
    assert found.finish_reason is FinishReason.LENGTH
    assert len(found.token_ids) == 20
    assert [(s.version, s.start, s.end) for s in found.weight_versions] == [("v1", 0, 20)]


async def test_a_stop_token_ends_the_turn_and_is_its_last_id(engine: TransformersEngine) -> None:
    whole = (await engine.generate(request())).token_ids
    stop = whole[5]
    cut = await engine.generate(replace(request(), stop_token_ids=(END, stop)))
    assert cut.finish_reason is FinishReason.STOP
    assert cut.token_ids == whole[: whole.index(stop) + 1]


async def test_the_next_turn_reads_only_what_is_new(
    engine: TransformersEngine, model: ArithmeticModel
) -> None:
    first = await engine.generate(request(1, 2, 3))
    model.reads.clear()
    second = await engine.generate(request(1, 2, 3, *first.token_ids, 8, 9))
    assert (first.cached_tokens, second.cached_tokens) == (0, 22)
    assert model.reads[0] == (22, 3)  # the last sampled id was drawn and never read


async def test_each_branch_of_an_episode_goes_on_where_it_was(engine: TransformersEngine) -> None:
    main = await engine.generate(request(1, 2, 3))
    await engine.generate(replace(request(7, 8), branch=1))
    again = await engine.generate(request(1, 2, 3, *main.token_ids))
    assert again.cached_tokens == 22
    engine.release(EpisodeId("job", "task", 0))
    assert engine._scheduler.cached_tokens == 0


async def test_other_ids_and_released_episodes_begin_again(engine: TransformersEngine) -> None:
    first = await engine.generate(request(1, 2, 3))
    other = await engine.generate(request(1, 2, 4, *first.token_ids))
    engine.release(EpisodeId("job", "task", 0))
    again = await engine.generate(request(1, 2, 4, *first.token_ids, *other.token_ids))
    assert (other.cached_tokens, again.cached_tokens) == (0, 0)


async def test_a_long_prompt_is_read_in_pieces_between_other_calls(
    engine: TransformersEngine, model: ArithmeticModel
) -> None:
    model.may_go.clear()
    long = asyncio.ensure_future(
        engine.generate(request(*[5] * (3 * PREFILL_TOKENS), sample=1, tokens=1))
    )
    short = asyncio.ensure_future(engine.generate(request(sample=2, tokens=4)))
    await asyncio.sleep(0)
    model.may_go.set()
    await asyncio.gather(long, short)
    sizes = [size for _, size in model.reads]
    assert sizes.count(PREFILL_TOKENS) == 3
    assert sizes.index(3) < len(sizes) - 1 - sizes[::-1].index(PREFILL_TOKENS)


async def test_calls_take_turns_token_by_token(
    engine: TransformersEngine, model: ArithmeticModel
) -> None:
    model.may_go.clear()
    calls = [asyncio.ensure_future(engine.generate(request(sample=n))) for n in range(3)]
    await asyncio.sleep(0)
    model.may_go.set()
    await asyncio.gather(*calls)
    lengths = [before for before, _ in model.reads]
    # The first may have begun alone; from then on nobody is more than a step ahead.
    assert all(lengths.count(length) == 3 for length in set(lengths))
    assert max(abs(a - b) for a, b in pairwise(lengths)) <= 4


async def test_a_cancelled_call_ends_between_two_tokens(
    engine: TransformersEngine, model: ArithmeticModel
) -> None:
    model.may_go.clear()
    call = asyncio.ensure_future(engine.generate(request(tokens=1500)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    model.may_go.set()
    after = await engine.generate(request(sample=1, tokens=2))
    assert len(after.token_ids) == 2
    assert len(model.reads) <= 4


async def test_a_call_that_waits_for_room_can_be_cancelled(model: ArithmeticModel) -> None:
    engine = TransformersEngine(model, cache_tokens=30)
    model.may_go.clear()
    first, second = (
        asyncio.ensure_future(engine.generate(request(sample=n, tokens=25))) for n in range(2)
    )
    await asyncio.sleep(0)
    second.cancel()
    model.may_go.set()
    assert len((await first).token_ids) == 25
    assert (await asyncio.gather(second, return_exceptions=True))[0].__class__ is (
        asyncio.CancelledError
    )
    await engine.aclose()


async def test_the_cache_is_bounded_and_drops_the_longest_unused(model: ArithmeticModel) -> None:
    engine = TransformersEngine(model, cache_tokens=100)
    ends = [await engine.generate(request(sample=n)) for n in range(12)]
    assert engine._scheduler.cached_tokens <= 100
    last = await engine.generate(request(1, 2, 3, *ends[11].token_ids, sample=11))
    first = await engine.generate(request(1, 2, 3, *ends[0].token_ids, sample=0))
    assert (last.cached_tokens, first.cached_tokens) == (22, 0)
    await engine.aclose()


async def test_the_context_bounds_a_turn(engine: TransformersEngine) -> None:
    found = await engine.generate(request(*[5] * 1995, tokens=50))
    assert (len(found.token_ids), found.finish_reason) == (5, FinishReason.LENGTH)
    with pytest.raises(ContextOverflowError, match="2000 input tokens fill the context of 2000"):
        await engine.generate(request(*[5] * 2000))


async def test_a_job_can_lower_the_context(model: ArithmeticModel) -> None:
    engine = TransformersEngine(model, cache_tokens=100, context_tokens=10)
    assert (await engine.info()).context_tokens == 10
    await engine.aclose()


@pytest.mark.parametrize("bad", [-1, VOCAB])
async def test_ids_outside_the_vocabulary_are_refused(engine: TransformersEngine, bad: int) -> None:
    with pytest.raises(BadRequestError, match="outside"):
        await engine.generate(request(1, bad))


async def test_a_failing_call_ends_alone(
    engine: TransformersEngine, model: ArithmeticModel
) -> None:
    model.error = RuntimeError("out of memory")
    with pytest.raises(EngineError, match="the model failed") as caught:
        await engine.generate(request())
    assert "out of memory" in caught.value.why
    assert caught.value.retryable
    model.error = None
    assert (await engine.generate(request())).token_ids


async def test_a_closed_engine_ends_its_calls_and_takes_no_more(model: ArithmeticModel) -> None:
    engine = TransformersEngine(model, cache_tokens=4000)
    model.may_go.clear()
    call = asyncio.ensure_future(engine.generate(request(tokens=1500)))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(engine.aclose())
    await until(lambda: engine._scheduler._is_closed)
    model.may_go.set()
    await closing
    with pytest.raises(EngineError, match="closed"):
        await call
    with pytest.raises(EngineError, match="closed"):
        await engine.generate(request())
    with pytest.raises(UnreachableError):
        await engine.info()
