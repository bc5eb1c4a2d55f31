"""Engines that wrap others, for tokens and for messages: each turn goes through an `Around`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.chat.base import ChatEngine, ChatRequest, ChatResponse
from swe_rollout.errors import EngineError, ExtensionFailedError, boundary
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

_T = TypeVar("_T", Generation, ChatResponse)
_E = TypeVar("_E", TokenEngine, ChatEngine)


class Around(Protocol):
    """Wraps each turn of an engine."""

    async def __call__(
        self, request: GenerateRequest | ChatRequest, call: Callable[[], Awaitable[_T]]
    ) -> _T:
        """Return the response to a request; `call` obtains it from the engine."""
        ...


def wrapped_engine(engine: TokenEngine | ChatEngine, around: Around) -> TokenEngine | ChatEngine:
    """Return an engine of the same kind whose turns go through `around`."""
    if isinstance(engine, ChatEngine):
        return WrappedChatEngine(engine, around)
    return WrappedEngine(engine, around)


class _Wrapped(Generic[_E]):
    """Forwards whatever both kinds of engine share."""

    _engine: _E

    def __init__(self, engine: _E, around: Around) -> None:
        self._engine = engine
        self._around = around

    async def info(self) -> EngineInfo:
        async with boundary(EngineError, "the engine"):
            return await self._engine.info()

    def release(self, episode: EpisodeId) -> None:
        self._engine.release(episode)

    async def aclose(self) -> None:
        await self._engine.aclose()


class WrappedEngine(_Wrapped[TokenEngine], TokenEngine):
    """A token engine that wraps another."""

    async def generate(self, request: GenerateRequest) -> Generation:
        return await self._around(request, partial(self._generate, request))

    async def _generate(self, request: GenerateRequest) -> Generation:
        async with boundary(EngineError, "the engine"):
            found: object = await self._engine.generate(request)
        return _returned(Generation, found, self._engine)


class WrappedChatEngine(_Wrapped[ChatEngine], ChatEngine):
    """A chat engine that wraps another."""

    async def respond(self, request: ChatRequest) -> ChatResponse:
        return await self._around(request, partial(self._respond, request))

    async def _respond(self, request: ChatRequest) -> ChatResponse:
        async with boundary(EngineError, "the engine"):
            found: object = await self._engine.respond(request)
        return _returned(ChatResponse, found, self._engine)


def _returned(wanted: type[_T], found: object, engine: object) -> _T:
    if not isinstance(found, wanted):
        raise ExtensionFailedError(
            f"the engine returned {type(found).__name__} instead of a {wanted.__name__}",
            fix="run its contract tests (docs/how-to/extend/engines.md)",
            by=engine,
        )
    return found
