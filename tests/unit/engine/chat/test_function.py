"""A function of one's own as an engine: what it may return, and how it is named."""

from __future__ import annotations

import asyncio

import pytest

from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatCall,
    ChatEngine,
    ChatRequest,
    ChatResponse,
)
from swe_rollout.engine.chat.function import CHAT_ENGINES, FunctionEngine, chat_engine
from swe_rollout.engine.chat.openai import openai_messages, openai_tools
from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.errors import ExtensionFailedError
from swe_rollout.extension import ExtensionError
from swe_rollout.testing.extensions.chat_engines import ChatEngineContract
from swe_rollout.types.turn import FinishReason
from unit.engine.chat.chat_parts import request


async def echo(request: ChatRequest, *, prefix: str = "") -> str:
    """Say what was said."""
    return prefix + str(openai_messages(request)[1]["content"])


class Calls:
    """An engine that is an object with a state."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, request: ChatRequest) -> ChatResponse:
        """Call the first tool."""
        assert openai_tools(request)
        call = ChatCall("1", self.name, "{}")
        return ChatResponse(AssistantMessage("", (call,)), FinishReason.STOP)


def plain(request: ChatRequest) -> str:
    """A function that would hold the event loop."""
    return str(request)


class TestContract(ChatEngineContract):
    """What every chat engine does."""

    @pytest.fixture
    def engine(self) -> ChatEngine:
        return chat_engine(f"{__name__}:Calls", {"name": "echo"})


async def test_a_text_is_a_message_without_calls() -> None:
    engine = chat_engine(f"{__name__}:echo", {"prefix": "> "})
    found = await engine.respond(request())
    assert (found.message, found.finish_reason) == (
        AssistantMessage("> Fix it."),
        FinishReason.STOP,
    )
    assert (await engine.info()).model == f"{__name__}:echo"
    await engine.aclose()


async def test_an_object_may_answer_with_calls() -> None:
    engine = chat_engine(f"{__name__}:Calls", {"name": "bash"})
    assert isinstance(engine, ChatEngine)
    assert (await engine.respond(request())).message.calls == (ChatCall("1", "bash", "{}"),)


async def test_an_engine_is_used_as_it_is() -> None:
    own = FunctionEngine(echo, name="own")
    CHAT_ENGINES.register("own_engine")(own)
    assert chat_engine("own_engine", {}) is own


@pytest.mark.parametrize(
    ("use", "parameters"), [("plain", {}), ("nothing", {}), ("echo", {"prefiks": 1})]
)
def test_what_is_no_engine_is_refused(use: str, parameters: dict[str, object]) -> None:
    with pytest.raises(ExtensionError):
        chat_engine(f"{__name__}:{use}", parameters)


async def test_its_bugs_are_named_by_their_line() -> None:
    async def broken(request: ChatRequest) -> str:
        raise KeyError(len(request.messages))

    with pytest.raises(ExtensionFailedError, match="the chat function mine failed") as caught:
        await FunctionEngine(broken, name="mine").respond(request())
    assert "KeyError: 3" in caught.value.why
    assert "raise KeyError(len(" in caught.value.trace


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {"content": "text"},
    ],
    ids=["none", "dict"],
)
async def test_what_is_no_response_is_refused(bad: object) -> None:
    async def answer(request: ChatRequest) -> object:
        del request
        return bad

    engine = FunctionEngine(answer, name="mine")  # type: ignore[arg-type]
    with pytest.raises(InvalidAnswerError):
        await engine.respond(request())


async def test_cancelling_reaches_the_function() -> None:
    ended = asyncio.Event()

    async def slow(request: ChatRequest) -> str:
        del request
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    work = asyncio.ensure_future(FunctionEngine(slow, name="mine").respond(request()))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended.is_set()
