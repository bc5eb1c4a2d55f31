"""Single calls to a served tiny model: a prompt that ends, one that does not, and the load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.pool.probe import HealthProbe
from swe_rollout.engine.sglang.connection import OK, EngineConnection
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

PROMPT_TEXT = "<|im_start|>user\nfix it<|im_end|>\n<|im_start|>assistant\n"
ENDLESS_TEXT = f"{PROMPT_TEXT}So on and on and on and on and"
"""The tiny model continues this up to its bound; other models are apt to."""
TOKENIZER = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
PROMPT: list[int] = TOKENIZER.encode(PROMPT_TEXT).ids
VOCAB_SIZE: int = TOKENIZER.get_vocab_size()
STOP: tuple[int, ...] = tuple(TOKENIZER.encode("<|im_end|>").ids)
REQUEST = GenerateRequest(
    episode=EpisodeId("job", "café__task-1", 0),
    turn=0,
    input_ids=InputIds.of(PROMPT),
    max_new_tokens=16,
    sampling=Sampling(),
    stop_token_ids=(),
)


def long(request: GenerateRequest, endless: Sequence[int]) -> GenerateRequest:
    """Make a call that runs until it is ended: a minute, at least some seconds."""
    ids = InputIds.of(list(endless))
    return replace(request, input_ids=ids, max_new_tokens=6000, sampling=Sampling(temperature=0.0))


LONG_CALL = long(REQUEST, TOKENIZER.encode(ENDLESS_TEXT).ids)


def of(request: GenerateRequest, episode: int) -> GenerateRequest:
    """Return the same call by another episode."""
    return replace(request, episode=EpisodeId("job", "task", episode))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; fail after a minute."""
    for _ in range(1200):
        if holds():
            return
        await asyncio.sleep(0.05)
    pytest.fail("the condition never held")


async def count_calls(url: str) -> int:
    """Count the calls that the server runs or queues."""
    probe = HealthProbe(url, api_key_env=None, timeout_s=60.0)
    try:
        calls = await probe.count_calls()
    finally:
        await probe.aclose()
    assert calls is not None
    return calls


async def abort(url: str, rid: str | None = None) -> None:
    """Abort the call of that id, or all calls.

    A call that is held by a pause is not aborted by its id, then or later.
    """
    order = {"abort_all": True} if rid is None else {"rid": rid}
    connection = EngineConnection(url)
    try:
        response = await connection.post("/abort_request", json.dumps(order).encode())
    finally:
        await connection.aclose()
    assert response.status == OK


async def until_busy(url: str, wanted: int, *, polls: int = 600) -> None:
    """Wait until the server runs or queues so many calls; fail after `polls` requests."""
    for _ in range(polls):
        if await count_calls(url) == wanted:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"the server never had {wanted} calls")


async def until_runs_or_ended(url: str, call: asyncio.Task[Generation]) -> None:
    """Wait until the server runs the only call that there is, or the call has ended already."""
    for _ in range(600):
        if call.done() or await count_calls(url):
            return
        await asyncio.sleep(0.1)
    pytest.fail("the server never had the call")


def write_record(request: GenerateRequest, generation: Generation, path: Path) -> Path:
    """Write the call as a record of one turn, with the fields that the teacher reads."""
    prompt = request.input_ids.ids.tolist()
    sampled = [
        {
            "kind": "sampled",
            "start": len(prompt) + span.start,
            "end": len(prompt) + span.end,
            "turn": 0,
            "weight_version": span.version,
        }
        for span in generation.weight_versions
    ]
    record = {
        "episode": str(request.episode),
        "token_ids": [*prompt, *generation.token_ids],
        "logprobs": [*[None] * len(prompt), *generation.logprobs],
        "segments": [{"kind": "prompt", "start": 0, "end": len(prompt), "turn": 0}, *sampled],
    }
    path.write_text(json.dumps(record))
    return path
