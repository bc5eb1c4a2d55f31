"""The client against a real, unmodified SGLang server."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from sglang.calls import STOP, TOKENIZER, abort, until_busy
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import BadRequestError, ContextOverflowError
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.turn import FinishReason, WeightSpan

if TYPE_CHECKING:
    from sglang.served import Served

pytestmark = pytest.mark.sglang

(END_OF_TEXT,) = TOKENIZER.encode("<|endoftext|>").ids
CONTEXT_TOKENS = 8186
"""Of the tiny model's 8192: the engine reserves a few tokens for itself."""


@pytest.fixture
def tiny(served: Served) -> Served:
    """Return the shared server, where it serves the tiny model."""
    if not served.is_tiny:
        pytest.skip("needs the tiny model: unset SGLANG_URL")
    return served


@pytest.mark.usefixtures("tiny")
async def test_the_engine_reports_its_context_and_its_weight_version(engine: SglangEngine) -> None:
    info = await engine.info()
    assert info.context_tokens == CONTEXT_TOKENS
    assert info.weight_version == "default"
    assert info.model


async def test_every_sampled_id_is_of_the_vocabulary_and_has_a_logprob(
    served: Served, engine: SglangEngine
) -> None:
    generation = await engine.generate(served.call)
    count = len(generation.token_ids)
    assert 1 <= count <= served.call.max_new_tokens
    assert all(0 <= token_id < served.renderer.vocab_size for token_id in generation.token_ids)
    assert len(generation.logprobs) == count
    assert all(math.isfinite(value) and value <= 0 for value in generation.logprobs)
    assert generation.prompt_tokens == len(served.call.input_ids)
    assert generation.weight_versions == (WeightSpan("default", 0, count),)


async def test_a_generation_that_reaches_its_bound_finishes_by_length(
    served: Served, engine: SglangEngine
) -> None:
    generation = await engine.generate(replace(served.long_call, max_new_tokens=100))
    assert generation.finish_reason is FinishReason.LENGTH
    assert len(generation.token_ids) == 100


async def test_the_tiny_model_writes_tool_calls_and_ends_its_turns(
    tiny: Served, engine: SglangEngine
) -> None:
    call = replace(tiny.call, max_new_tokens=200, stop_token_ids=STOP)
    generations = await asyncio.gather(*(engine.generate(call) for _ in range(20)))
    ended = [g for g in generations if g.finish_reason is FinishReason.STOP]
    assert len(ended) > 10
    # The server also stops at its checkpoint's own end of text, which may be drawn now and then.
    ends = {g.token_ids[-1] for g in ended}
    assert set(STOP) <= ends <= {*STOP, END_OF_TEXT}
    texts = [TOKENIZER.decode(list(g.token_ids), skip_special_tokens=False) for g in ended]
    assert any('<tool_call>\n{"name": "bash"' in text for text in texts)


async def test_the_stop_token_is_the_last_sampled_id(tiny: Served, engine: SglangEngine) -> None:
    even = tuple(range(0, tiny.renderer.vocab_size, 2))
    generation = await engine.generate(replace(tiny.call, max_new_tokens=400, stop_token_ids=even))
    assert generation.finish_reason is FinishReason.STOP
    assert generation.token_ids[-1] in {*even, END_OF_TEXT}


async def test_a_second_turn_reads_the_first_from_the_prefix_cache(
    served: Served, engine: SglangEngine
) -> None:
    first = await engine.generate(served.call)
    prompt = _ids(served.call)
    longer = [*prompt, *first.token_ids, *served.encode("\n<|im_start|>user\nok")]
    second = await engine.generate(replace(served.call, input_ids=InputIds.of(longer), turn=1))
    assert second.cached_tokens >= len(prompt)


async def test_the_longest_possible_prompt_still_gets_a_token(
    served: Served, engine: SglangEngine
) -> None:
    nearly_full = _filled(served.call, await _context(engine) - 1)
    generation = await engine.generate(replace(nearly_full, max_new_tokens=999))
    assert len(generation.token_ids) == 1


@pytest.mark.parametrize(("prompt_share", "new_share"), [(1.0, 0.0), (1.1, 0.0), (0.5, 1.0)])
async def test_each_of_the_servers_own_errors_for_a_long_request_has_the_same_type(
    served: Served, engine: SglangEngine, prompt_share: float, new_share: float
) -> None:
    context = await _context(engine)
    long = _filled(served.call, int(prompt_share * context))
    new_tokens = 1 + int(new_share * context)
    body = protocol.encode_request(long, rid="0" * 32, max_new_tokens=new_tokens)
    headers = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=served.url, trust_env=False) as http:
        response = await http.post("/generate", content=body, headers=headers)
    error = protocol.error_from_response(response.status_code, response.content)
    assert isinstance(error, ContextOverflowError), error


async def test_a_request_that_the_server_rejects_is_not_retried(
    served: Served, engine: SglangEngine
) -> None:
    with pytest.raises(BadRequestError, match="temperature"):
        await engine.generate(
            replace(served.call, sampling=Sampling.model_construct(temperature=-1.0))
        )


async def test_a_cancelled_call_stops_running_on_the_server(
    served: Served, engine: SglangEngine
) -> None:
    call = asyncio.create_task(engine.generate(served.long_call))
    await until_busy(served.url, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_busy(served.url, 0, polls=100)


async def test_an_aborted_generation_keeps_its_partial_tokens(
    served: Served, engine: SglangEngine
) -> None:
    call = asyncio.create_task(engine.generate(served.long_call))
    await until_busy(served.url, 1)
    await abort(served.url)
    generation = await call
    assert generation.finish_reason is FinishReason.ABORT
    assert len(generation.token_ids) == len(generation.logprobs) < 6000


async def _context(engine: SglangEngine) -> int:
    tokens = (await engine.info()).context_tokens
    assert tokens is not None
    return tokens


def _filled(request: GenerateRequest, tokens: int) -> GenerateRequest:
    ids = _ids(request)
    filled = (ids * (tokens // len(ids) + 1))[:tokens]
    return replace(request, input_ids=InputIds.of(filled))


def _ids(request: GenerateRequest) -> list[int]:
    ids: list[int] = request.input_ids.ids.tolist()
    return ids
