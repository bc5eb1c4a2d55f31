"""The client against a real, unmodified SGLang server."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest
from tokenizers import Tokenizer

from swe_rollout.engine import wire
from swe_rollout.engine.base import GenerateRequest, Sampling
from swe_rollout.errors import InternalError
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.tokens import InputIds
from swe_rollout.trajectory import EpisodeId, FinishReason, WeightSpan

if TYPE_CHECKING:
    from swe_rollout.engine.sglang import SglangEngine

pytestmark = pytest.mark.sglang

TOKENIZER = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
PROMPT: list[int] = TOKENIZER.encode(
    "<|im_start|>user\nfix it<|im_end|>\n<|im_start|>assistant\n"
).ids
# The tiny model goes on with this for as long as it may.
ENDLESS: list[int] = [*PROMPT, *TOKENIZER.encode("So on and on and on and on and").ids]
VOCAB_SIZE = TOKENIZER.get_vocab_size()
STOP = tuple(TOKENIZER.encode("<|im_end|>").ids)
(END_OF_TEXT,) = TOKENIZER.encode("<|endoftext|>").ids
MODEL_CONTEXT_TOKENS = 8192
CONTEXT_TOKENS = 8186
"""What the engine really takes: it keeps a few tokens of the model's context for itself."""
REQUEST = GenerateRequest(
    episode=EpisodeId("job", "café__task-1", 0),
    turn=0,
    input_ids=InputIds.of(PROMPT),
    max_new_tokens=16,
    sampling=Sampling(),
    stop_token_ids=(),
)
LONG_CALL = replace(
    REQUEST, input_ids=InputIds.of(ENDLESS), max_new_tokens=6000, sampling=Sampling(temperature=0.0)
)


async def test_the_engine_says_its_context_and_its_weight_version(engine: SglangEngine) -> None:
    info = await engine.info()
    assert info.context_tokens == CONTEXT_TOKENS
    assert info.weight_version == "default"
    assert info.model


async def test_every_sampled_id_is_of_the_vocabulary_and_has_a_logprob(
    engine: SglangEngine,
) -> None:
    generation = await engine.generate(REQUEST)
    count = len(generation.token_ids)
    assert 1 <= count <= 16
    assert all(0 <= token_id < VOCAB_SIZE for token_id in generation.token_ids)
    assert len(generation.logprobs) == count
    assert all(math.isfinite(value) and value <= 0 for value in generation.logprobs)
    assert generation.prompt_tokens == len(PROMPT)
    assert generation.weight_versions == (WeightSpan("default", 0, count),)


async def test_a_generation_that_reaches_its_bound_finishes_by_length(
    engine: SglangEngine,
) -> None:
    generation = await engine.generate(replace(LONG_CALL, max_new_tokens=100))
    assert generation.finish_reason is FinishReason.LENGTH
    assert len(generation.token_ids) == 100


async def test_the_tiny_model_writes_tool_calls_and_ends_its_turns(engine: SglangEngine) -> None:
    calls = [replace(REQUEST, max_new_tokens=200, stop_token_ids=STOP) for _ in range(20)]
    generations = await asyncio.gather(*map(engine.generate, calls))
    ended = [g for g in generations if g.finish_reason is FinishReason.STOP]
    assert len(ended) > 10
    # The server also stops at its checkpoint's own end of text, which may be drawn now and then.
    ends = {g.token_ids[-1] for g in ended}
    assert set(STOP) <= ends <= {*STOP, END_OF_TEXT}
    texts = [TOKENIZER.decode(list(g.token_ids), skip_special_tokens=False) for g in ended]
    assert any('<tool_call>\n{"name": "bash"' in text for text in texts)


async def test_the_stop_token_is_the_last_sampled_id(engine: SglangEngine) -> None:
    request = replace(REQUEST, max_new_tokens=400, stop_token_ids=tuple(range(0, VOCAB_SIZE, 2)))
    generation = await engine.generate(request)
    assert generation.finish_reason is FinishReason.STOP
    assert generation.token_ids[-1] % 2 == 0


async def test_a_second_turn_reads_the_first_from_the_prefix_cache(engine: SglangEngine) -> None:
    first = await engine.generate(REQUEST)
    longer = [*PROMPT, *first.token_ids, *TOKENIZER.encode("\n<|im_start|>user\nok").ids]
    second = await engine.generate(replace(REQUEST, input_ids=InputIds.of(longer), turn=1))
    assert second.cached_tokens >= len(PROMPT)


async def test_the_longest_possible_prompt_still_gets_a_token(engine: SglangEngine) -> None:
    nearly_full = (PROMPT * CONTEXT_TOKENS)[: CONTEXT_TOKENS - 1]
    generation = await engine.generate(
        replace(REQUEST, input_ids=InputIds.of(nearly_full), max_new_tokens=999)
    )
    assert len(generation.token_ids) == 1


async def test_a_full_context_is_a_typed_error_before_anything_is_sent(
    engine: SglangEngine,
) -> None:
    full = (PROMPT * CONTEXT_TOKENS)[:CONTEXT_TOKENS]
    with pytest.raises(wire.ContextOverflowError, match="fill the context"):
        await engine.generate(replace(REQUEST, input_ids=InputIds.of(full)))


@pytest.mark.parametrize(
    ("prompt_tokens", "max_new_tokens"),
    [(CONTEXT_TOKENS, 1), (MODEL_CONTEXT_TOKENS, 1), (MODEL_CONTEXT_TOKENS // 2, 9999)],
)
async def test_each_of_the_servers_own_refusals_of_a_long_request_has_the_same_type(
    sglang_url: str, prompt_tokens: int, max_new_tokens: int
) -> None:
    full = replace(REQUEST, input_ids=InputIds.of((PROMPT * MODEL_CONTEXT_TOKENS)[:prompt_tokens]))
    body = wire.encode_request(full, rid="0" * 32, max_new_tokens=max_new_tokens)
    headers = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=sglang_url, trust_env=False) as http:
        answer = await http.post("/generate", content=body, headers=headers)
    error = wire.refusal(answer.status_code, answer.content)
    assert isinstance(error, wire.ContextOverflowError), error


async def test_a_request_that_the_server_refuses_is_not_tried_again(engine: SglangEngine) -> None:
    with pytest.raises(wire.BadRequestError, match="temperature"):
        await engine.generate(replace(REQUEST, sampling=Sampling(temperature=-1.0)))


async def test_an_id_outside_the_vocabulary_never_reaches_the_server(engine: SglangEngine) -> None:
    with pytest.raises(InternalError, match="nothing was sent"):
        await engine.generate(replace(REQUEST, input_ids=InputIds.of([VOCAB_SIZE])))
    assert (await engine.generate(REQUEST)).token_ids


async def test_a_cancelled_call_stops_running_on_the_server(
    engine: SglangEngine, sglang_url: str
) -> None:
    call = asyncio.create_task(engine.generate(LONG_CALL))
    await _until_running(sglang_url, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await _until_running(sglang_url, 0)


async def test_an_aborted_generation_keeps_its_partial_tokens(
    engine: SglangEngine, sglang_url: str
) -> None:
    call = asyncio.create_task(engine.generate(LONG_CALL))
    await _until_running(sglang_url, 1)
    async with httpx.AsyncClient(base_url=sglang_url, trust_env=False) as http:
        await http.post("/abort_request", json={"abort_all": True})
    generation = await call
    assert generation.finish_reason is FinishReason.ABORT
    assert len(generation.token_ids) == len(generation.logprobs) < 6000


async def _until_running(url: str, wanted: int) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        for _ in range(300):
            loads = (await http.get("/v1/loads")).json()["loads"]
            if sum(load["num_running_reqs"] for load in loads) == wanted:
                return
            await asyncio.sleep(0.05)
    pytest.fail(f"the server never had {wanted} calls running")
