"""Engines around others, of tokens and of messages: each turn goes through an `Around`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import ChatEngine, ChatRequest, ChatResponse
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

_T = TypeVar("_T", Generation, ChatResponse)
_E = TypeVar("_E", TokenEngine, ChatEngine)


class Around(Protocol):
    """Surrounds each turn of an engine."""

    async def __call__(
        self, request: GenerateRequest | ChatRequest, call: Callable[[], Awaitable[_T]]
    ) -> _T:
        """Return the answer to a request, which `call` asks the engine for."""
        ...


def wrapped_engine(engine: TokenEngine | ChatEngine, around: Around) -> TokenEngine | ChatEngine:
    """Return an engine of the same kind whose turns go through `around`."""
    if isinstance(engine, ChatEngine):
        return WrappedChatEngine(engine, around)
    return WrappedEngine(engine, around)


class _Wrapped(Generic[_E]):
    """Forwards what is the same for both kinds of engine."""

    _engine: _E

    def __init__(self, engine: _E, around: Around) -> None:
        self._engine = engine
        self._around = around

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)

    async def aclose(self) -> None:
        await self._engine.aclose()


class WrappedEngine(_Wrapped[TokenEngine], TokenEngine):
    """A token engine around another one."""

    async def generate(self, request: GenerateRequest) -> Generation:
        return await self._around(request, partial(self._engine.generate, request))


class WrappedChatEngine(_Wrapped[ChatEngine], ChatEngine):
    """A chat engine around another one."""

    async def respond(self, request: ChatRequest) -> ChatResponse:
        return await self._around(request, partial(self._engine.respond, request))
