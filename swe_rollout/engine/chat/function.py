"""FunctionEngine: a user's own function responds to the conversation.

It supports any model without a built-in client: a library, a gateway, a model in the process.
"""

from __future__ import annotations

import inspect
from typing import Protocol

from swe_rollout.engine.base import EngineInfo
from swe_rollout.engine.chat.base import AssistantMessage, ChatEngine, ChatRequest, ChatResponse
from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.errors import EngineError, boundary
from swe_rollout.extension import ExtensionPoint
from swe_rollout.types.turn import FinishReason


class ChatFunction(Protocol):
    """Responds to a conversation."""

    async def __call__(self, request: ChatRequest, /) -> ChatResponse | str:
        """Return the policy's next message; a plain text is a message without calls."""
        ...


class FunctionEngine(ChatEngine):
    """Calls a function for every message."""

    def __init__(self, function: ChatFunction, *, name: str) -> None:
        """Use a function; `name` appears in records."""
        self._function = function
        self._name = name

    async def info(self) -> EngineInfo:
        return EngineInfo(self._name, context_tokens=None, vocab_size=None, weight_version=None)

    async def respond(self, request: ChatRequest) -> ChatResponse:
        async with boundary(EngineError, f"the chat function {self._name}"):
            found: object = await self._function(request)
        if isinstance(found, str):
            found = ChatResponse(AssistantMessage(found), FinishReason.STOP)
        if not isinstance(found, ChatResponse):
            raise InvalidAnswerError(
                f"the chat function {self._name} returned {type(found).__name__}",
                fix="return a ChatResponse, or the text of a message without calls",
            )
        return found


def _is_chat_engine(value: object) -> bool:
    call = getattr(value, "__call__", None)  # noqa: B004 - a class may define it as async
    return (
        (isinstance(value, ChatEngine) and not isinstance(value, type))
        or inspect.iscoroutinefunction(value)
        or inspect.iscoroutinefunction(call)
    )


CHAT_ENGINES: ExtensionPoint[ChatEngine | ChatFunction] = ExtensionPoint(
    "chat engine",
    group="swe_rollout.chat_engines",
    accepts=_is_chat_engine,
    expected="an async function of a ChatRequest that returns a ChatResponse or a text",
    builtin={},
)


def chat_engine(use: str, parameters: dict[str, object]) -> ChatEngine:
    """Create the chat engine that a job names; raises ExtensionError."""
    found = CHAT_ENGINES.load(use, parameters)
    return found if isinstance(found, ChatEngine) else FunctionEngine(found, name=use)
