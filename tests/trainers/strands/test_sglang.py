"""Agents on a real SGLang server on the CPU, and their tokens against the model itself in fp32."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal, cast

import pytest
from pydantic import BaseModel
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager
from strands.types.exceptions import EventLoopException, MaxTokensReachedException

from sglang.calls import abort, count_calls
from sglang.served import MODEL, teach
from swe_rollout.agent.renderer import Renderer
from swe_rollout.integrations.strands import (
    LoopLimiter,
    LoopLimitReachedError,
    Rollout,
    SGLangClient,
    SglangModel,
    get_tokenizer,
)
from swe_rollout.launcher import sync
from swe_rollout.tokens.log import SegmentKind
from trainers.strands.agents import Shell
from trainers.strands.servers import serving

pytestmark = [pytest.mark.trainers, pytest.mark.sglang]

TOLERANCE = 1e-3
"""Of the ratio of probabilities, on every trained token."""
ABORTS = 10
"""Fewer than one turn may have."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory) as own:
        yield own


async def episode(
    client: SGLangClient,
    *,
    turns: int = 6,
    temperature: float = 1.0,
    prompt_logprobs: bool = True,
) -> Rollout:
    """Play an episode of the tiny model, which calls `bash`, and forms some calls badly."""
    model = SglangModel(
        client=client,
        tokenizer=get_tokenizer(str(MODEL)),
        sampling_params={"max_new_tokens": 160, "temperature": temperature},
        return_prompt_logprobs=prompt_logprobs,
    )
    agent = Agent(
        model=model,
        tools=[Shell("<|im_end|> at\n  1 line").tool()],
        hooks=[LoopLimiter(max_tool_iters=turns)],
        system_prompt="You act.",
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
    prompt: str = "fix it"
    for _ in range(turns):
        try:
            await agent.invoke_async(prompt)
        except MaxTokensReachedException:
            prompt = "go on"  # a turn that was cut
        except EventLoopException as error:
            assert isinstance(error.original_exception, LoopLimitReachedError)  # noqa: PT017
            break
        else:
            prompt = "and now?"
    return model.rollout


async def episodes(url: str, count: int, *, temperature: float = 1.0) -> list[Rollout]:
    """Play episodes at once, while all calls are aborted some times."""
    async with SGLangClient(url) as client:
        playing = asyncio.gather(*(episode(client, temperature=temperature) for _ in range(count)))
        aborts = 0
        while aborts < ABORTS and not playing.done():
            await asyncio.sleep(0.4)
            if await count_calls(url):
                await abort(url)
                aborts += 1
        return await playing


def write(rollout: Rollout, path: Path) -> Path:
    """Write a rollout as a record that the teacher reads."""
    branch = rollout.branch()
    record = {
        "episode": "strands/fix/0",
        "token_ids": branch.token_ids,
        "logprobs": branch.logprobs,
        "segments": [asdict(segment) for segment in branch.segments],
        "prompt_logprobs": branch.prompt_logprobs,
    }
    path.write_text(json.dumps(record))
    return path


def ratio_off(report: dict[str, object], field: str = "max_difference") -> float:
    """Return max |ratio - 1| of a teacher's report."""
    return math.expm1(cast("float", report[field]))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_every_trained_token_has_the_probability_that_the_model_gives_it(
    url: str, tmp_path: Path, temperature: float
) -> None:
    """With aborted and cut turns, calls that could not be read, and prompt logprobs (S7)."""
    rollouts = await episodes(url, 6, temperature=temperature)
    paths = [write(rollout, tmp_path / f"{i}.json") for i, rollout in enumerate(rollouts)]
    report = teach(paths, {"default": MODEL}, temperature=temperature)
    assert report["records"] == len(rollouts)
    assert report["tokens"] == sum(sum(rollout.loss_mask) for rollout in rollouts) > 1000
    assert ratio_off(report) < TOLERANCE
    assert report["prompt_tokens"] > 500
    assert ratio_off(report, "prompt_max_difference") < TOLERANCE
    runs = [segment for each in rollouts for segment in each.branch().segments]
    sampled = [segment for segment in runs if segment.kind is SegmentKind.SAMPLED]
    turns = sum(is_output for each in rollouts for is_output, _ in each.segment_info)
    assert turns >= 3 * len(rollouts)
    assert len(sampled) > turns, "no turn was aborted: the test shows less than it says"


class Verdict(BaseModel):
    """What a judge says."""

    good: bool
    mood: Literal["calm", "angry"]


async def test_structured_output_is_constrained_and_keeps_no_tokens(url: str) -> None:
    """S10."""
    async with SGLangClient(url) as client:
        tokenizer = get_tokenizer(str(MODEL))
        model = SglangModel(
            client=client, tokenizer=tokenizer, sampling_params={"temperature": 0.0}
        )
        messages = [{"role": "user", "content": [{"text": "Is it good?"}]}]
        outputs = [each async for each in model.structured_output(Verdict, messages)]
        assert isinstance(outputs[-1]["output"], Verdict)
        assert model.token_ids == []
        # As a question about a conversation, too.
        model.update_config(sampling_params={"max_new_tokens": 16})
        agent = Agent(model=model, callback_handler=None)
        with suppress(MaxTokensReachedException):
            await agent.invoke_async("Say it.")
        before = model.token_ids
        model.update_config(sampling_params={"max_new_tokens": 100})
        outputs = [
            each async for each in model.structured_output(Verdict, [*agent.messages, *messages])
        ]
        assert isinstance(outputs[-1]["output"], Verdict)
        assert model.token_ids == before


async def test_the_client_talks_to_the_server(url: str) -> None:
    """S1, S3."""
    async with SGLangClient(url) as client:
        assert await client.health()
        assert await client.is_multimodal() is False
        info = await client.model_info()
        assert info is not None
        assert info["model_path"]
        response = await client.generate(
            [1, 2, 3], sampling_params={"max_new_tokens": 4}, return_logprob=True
        )
        assert len(cast("list[int]", response["output_ids"])) <= 4


async def test_a_server_can_be_used_from_one_loop_after_the_other(url: str) -> None:
    """WS8: also by the synchronous face of an agent, which makes a loop for each call."""
    client = SGLangClient(url)
    renderer = Renderer.load(str(MODEL))
    model = SglangModel(client=client, tokenizer=renderer, sampling_params={"max_new_tokens": 40})

    def speak(prompt: str) -> None:
        agent(prompt, limits={"turns": 2})

    agent = Agent(model=model, callback_handler=None)
    for prompt in ("Hi", "And now?"):
        with suppress(MaxTokensReachedException):
            await asyncio.to_thread(speak, prompt)
    text = renderer.decode(model.token_ids)
    assert "Hi<|im_end|>" in text
    assert "And now?<|im_end|>" in text
    assert not sync._HELD
