"""Contract tests for a chat engine: subclass `ChatEngineContract` and return yours.

    class TestMyAnswer(ChatEngineContract):
        @pytest.fixture
        def engine(self):
            return chat_engine("my_extensions:answer", {"model": "my-model"})

Needs pytest with pytest-asyncio in auto mode, and what the engine calls.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from swe_rollout.engine.chat.base import (
    ChatEngine,
    ChatRequest,
    ChatResponse,
    ChatTool,
    ToolResult,
    ToolResults,
    UserMessage,
)
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason

_ECHO = ChatTool(
    "echo",
    "Print a text.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


class ChatEngineContract:
    """The contract of `ChatEngine`. Override the fixture `engine`."""

    @pytest.fixture
    def engine(self) -> ChatEngine:
        """A connected engine."""
        raise NotImplementedError("override the fixture `engine`")

    def request(self) -> ChatRequest:
        """Return the first request of an episode."""
        return ChatRequest(
            episode=EpisodeId("contract", "task", 0),
            turn=0,
            system="Be brief.",
            messages=(UserMessage("Call the tool echo with the text hello."),),
            tools=(_ECHO,),
            max_new_tokens=256,
            sampling=Sampling(),
        )

    async def test_it_is_a_chat_engine_and_names_its_model(self, engine: ChatEngine) -> None:
        assert isinstance(engine, ChatEngine)
        assert (await engine.info()).model

    async def test_it_returns_a_message(self, engine: ChatEngine) -> None:
        found = await engine.respond(self.request())
        assert isinstance(found, ChatResponse)
        assert found.message.text or found.message.calls
        assert found.finish_reason is not FinishReason.ABORT

    async def test_calls_have_ids_of_their_own(self, engine: ChatEngine) -> None:
        calls = (await engine.respond(self.request())).message.calls
        assert len({call.id for call in calls}) == len(calls)
        assert all(call.id and isinstance(call.arguments, str) for call in calls)

    async def test_it_reads_what_it_said_and_the_results_of_its_calls(
        self, engine: ChatEngine
    ) -> None:
        first = self.request()
        said = (await engine.respond(first)).message
        results = ToolResults(tuple(ToolResult(call.id, "hello") for call in said.calls))
        following = (said, results) if said.calls else (said, UserMessage("Go on."))
        second = replace(first, turn=1, messages=(*first.messages, *following))
        assert isinstance(await engine.respond(second), ChatResponse)

    async def test_a_cancelled_call_leaves_the_engine_usable(self, engine: ChatEngine) -> None:
        call = asyncio.ensure_future(engine.respond(self.request()))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert isinstance(await engine.respond(self.request()), ChatResponse)

    async def test_releasing_an_episode_twice_has_no_effect(self, engine: ChatEngine) -> None:
        engine.release(self.request().episode)
        engine.release(self.request().episode)
        assert isinstance(await engine.respond(self.request()), ChatResponse)
