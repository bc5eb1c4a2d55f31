"""The page about Strands: its code runs, against a real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from strands import Agent
from strands.types.exceptions import EventLoopException, MaxTokensReachedException
from strands_tools import calculator
from transformers import AutoTokenizer

from sglang.served import MODEL
from swe_rollout.integrations.strands import SGLangClient, SGLangModel
from trainers.strands.servers import serving

pytestmark = [pytest.mark.trainers, pytest.mark.sglang]
HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = ("strands.md", "strands-in-slime.md")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory) as own:
        yield own


class Status(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"


def page(url: str) -> dict[str, Any]:
    """Run the code of both pages, but for the agent's run, whose model would have to be Qwen."""
    whole = "\n".join((HOW_TO / name).read_text("utf-8") for name in PAGES)
    blocks = re.findall(r"```python\n(.*?)```", whole, re.DOTALL)
    assert len(blocks) == 3
    code = "\n".join(blocks).replace("http://localhost:30000", url)
    code = code.replace("Qwen/Qwen3-4B", str(MODEL))
    assert 'result = agent("What is in this folder?")\n' in code
    code = code.replace('result = agent("What is in this folder?")\n', "result = start(agent)\n")

    def start(agent: Any) -> object:
        # The tiny model may well go on for ever.
        agent.model.update_config(sampling_params={"max_new_tokens": 48})
        with suppress(MaxTokensReachedException, EventLoopException):
            return agent("What is in this folder?", limits={"turns": 2})
        return None

    scope: dict[str, Any] = {"__name__": "page", "start": start}
    exec(compile(code, PAGES[0], "exec"), scope)  # noqa: S102 - our own page
    return scope


def test_the_page_runs(url: str) -> None:
    scope = page(url)
    model = scope["model"]
    assert len(model.token_ids) == len(model.loss_mask) == len(model.logprobs) > 50
    assert any(model.loss_mask)

    async def rollouts() -> None:
        """S14: what slime's `generate` is given, and what it fills in."""
        parts = urlsplit(url)
        args = SimpleNamespace(
            sglang_router_ip=parts.hostname,
            sglang_router_port=parts.port,
            sglang_server_concurrency=4,
            rollout_num_gpus=2,
            rollout_num_gpus_per_engine=1,
            hf_checkpoint=str(MODEL),
        )
        samples = [SimpleNamespace(prompt="fix it", Status=Status) for _ in range(4)]
        params = {"max_new_tokens": 100, "temperature": 1.0, "stop": None, "no_stop_trim": True}
        for sample in await asyncio.gather(
            *(scope["generate"](args, sample, params) for sample in samples)
        ):
            assert sample.status in (Status.COMPLETED, Status.TRUNCATED)
            assert sample.response_length == len(sample.loss_mask) == len(sample.rollout_log_probs)
            assert len(sample.tokens) > sample.response_length > 0
            trained = zip(sample.loss_mask, sample.rollout_log_probs, strict=True)
            assert all(value < 0 if mask else value == 0.0 for mask, value in trained)
            assert sample.tool_calls >= sample.tool_iters >= 0
            assert sample.response
        gone = SimpleNamespace(prompt="fix it", Status=Status)
        args.hf_checkpoint, args.sglang_router_port = str(MODEL), 9
        scope["get_client_from_slime_args"] = lambda _: SGLangClient(
            "http://127.0.0.1:9", max_retries=1
        )
        assert (await scope["generate"](args, gone, params)).status is Status.ABORTED
        assert (await scope["judge"]("it")).good in (True, False)

    asyncio.run(rollouts())


async def test_the_first_example_of_strands_sglang_runs_with_another_import(url: str) -> None:
    """A tokenizer of transformers, a tool of strands-agents-tools, columns by the manager."""
    async with SGLangClient(base_url=url) as client:
        tokenizer = AutoTokenizer.from_pretrained(str(MODEL))
        model = SGLangModel(client=client, tokenizer=tokenizer)
        model.update_config(sampling_params={"max_new_tokens": 64})
        agent = Agent(model=model, tools=[calculator], callback_handler=None)
        with suppress(MaxTokensReachedException, EventLoopException):
            await agent.invoke_async("What is 25 * 17?", limits={"turns": 3})
        manager = model.token_manager
        assert len(manager.token_ids) == len(manager.loss_mask) == len(manager.logprobs)
        assert sum(manager.loss_mask) > 0
        assert "25 * 17" in model.tokenizer.decode(manager.segments[0])
        assert "calculator" in model.tokenizer.decode(manager.segments[0])
