"""Opening the engine that a policy names: chat engines, and a model in the process."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack

import pytest

from swe_rollout.engine.chat.base import ChatEngine, ChatRequest
from swe_rollout.errors import PrerequisiteError, UnreachableError
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.spec.policy import Policy
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.worker.engines import EngineSetup, OpenEngine, open_engine
from unit.engine.chat.chat_parts import api, sends

EPISODE = EpisodeId("job", "task", 0)


async def answer(request: ChatRequest) -> str:
    """Say how long the conversation is."""
    return str(len(request.messages))


async def opened(stack: AsyncExitStack, **policy: object) -> OpenEngine:
    return await open_engine(EngineSetup(Policy.model_validate(policy), AgentSpec(), (), stack))


@pytest.mark.parametrize(("kind", "path"), [("openai", "/models"), ("anthropic", "/v1/models")])
async def test_an_api_is_probed_and_has_no_renderer(kind: str, path: str) -> None:
    async with api(sends({})) as (url, served), AsyncExitStack() as stack:
        found = await opened(stack, **{kind: {"model": "m", "url": url}})
        assert isinstance(found.engine, ChatEngine)
        assert (found.renderer, found.info.model) == (None, "m")
        assert found.policy_of(EPISODE) == f"{kind}:m"
    assert [request[0] for request in served.requests] == [path]


async def test_an_api_that_refuses_the_key_stops_the_job() -> None:
    async with api(sends({}, status=401)) as (url, _), AsyncExitStack() as stack:
        with pytest.raises(UnreachableError, match="rejects the key"):
            await opened(stack, openai={"model": "m", "url": url})


async def test_a_key_that_is_not_set_stops_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    async with AsyncExitStack() as stack:
        with pytest.raises(PrerequisiteError, match="NO_SUCH_KEY is not set"):
            await opened(stack, anthropic={"model": "m", "apiKeyEnv": "NO_SUCH_KEY"})


async def test_a_function_of_ones_own_is_named_in_records() -> None:
    async with AsyncExitStack() as stack:
        found = await opened(stack, chat={"use": f"{__name__}:answer"})
        assert isinstance(found.engine, ChatEngine)
        assert found.policy_of(EPISODE) == f"chat:{__name__}:answer"
        with pytest.raises(ExtensionError):
            await opened(stack, chat={"use": f"{__name__}:nothing"})


async def test_a_model_needs_pytorch_and_its_template_is_checked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    async with AsyncExitStack() as stack:
        with pytest.raises(PrerequisiteError, match="needs PyTorch"):
            await opened(stack, transformers={"model": str(tokenizer_path())})
        with pytest.raises(PrerequisiteError, match="there is no tokenizer"):
            await opened(stack, transformers={"model": "/no/such/folder"})
