"""Serve the chat APIs to harnesses: each request is bounded, and answered in its API's own form.

Harnesses run code of the policy, so whatever comes is untrusted: its size, depth and rate, and who
it says it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog
from aiohttp import web

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.engine.scripted.server import SILENT
from swe_rollout.errors import SweRolloutError
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.dialects.anthropic_messages import AnthropicMessages
from swe_rollout.gateway.dialects.base import Dialect, Wanted
from swe_rollout.gateway.dialects.google_generate import GoogleGenerate
from swe_rollout.gateway.dialects.openai_chat import OpenaiChat
from swe_rollout.gateway.dialects.openai_responses import OpenaiResponses
from swe_rollout.gateway.nodes import EndedError
from swe_rollout.gateway.values import Answer, BadRequestError

MAX_BODY_BYTES: Final = 32 << 20
MOST_RUNNING: Final = 64
"""The most requests of one session at a time."""
_LARGE_BYTES: Final = 1 << 16
"""Larger bodies are read in a thread."""
_READ_S: Final = 60.0
_WRITE_S: Final = 120.0
_PING_S: Final = 10.0
_GONE: Final = 499
log = structlog.get_logger()

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _RefusedError(Exception):
    """A request that gets an error, which the API words its own way."""

    def __init__(self, message: str, *, status: int, code: str, wait_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.wait_s = status, code, wait_s


class Served(Protocol):
    """A session as requests see it."""

    running: int
    reading: asyncio.Lock
    """Held while a large body is read, so that no session takes the thread from all others."""

    @property
    def conversations(self) -> Conversations:
        """What has been said."""
        ...


class Keys(Protocol):
    """Finds sessions."""

    def by_key(self, key: str) -> Served | None:
        """Return the open session of a key."""
        ...


@dataclass(frozen=True, slots=True)
class Api:
    """The routes of the chat APIs."""

    sessions: Keys

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        # Google's own clients have asked for each of its versions.
        google, messages = "/{version:v1|v1beta|v1alpha}/models/{model}:", AnthropicMessages()
        return [
            web.post("/v1/chat/completions", self._asks(OpenaiChat())),
            web.post("/v1/responses", self._asks(OpenaiResponses())),
            web.post("/v1/messages", self._asks(messages)),
            web.post("/v1/messages/count_tokens", self._counts(messages, "input_tokens")),
            web.post(f"{google}generateContent", self._asks(GoogleGenerate())),
            web.post(f"{google}streamGenerateContent", self._asks(GoogleGenerate(), streams=True)),
            web.post(f"{google}countTokens", self._counts(GoogleGenerate(), "totalTokens")),
            web.get("/{version:v1|v1beta|v1alpha}/models", self._handler(OpenaiChat(), _models)),
        ]

    def _asks(self, dialect: Dialect, *, streams: bool = False) -> _Handler:
        async def asked(http: web.Request, session: Served) -> web.StreamResponse:
            wanted, digests = await _read(http, session, dialect)
            wanted = replace(
                wanted,
                model=wanted.model or http.match_info.get("model", ""),
                streams=wanted.streams or streams,
            )
            return await _answered(http, dialect, wanted, _answer(session, wanted, digests))

        return self._handler(dialect, asked)

    def _counts(self, dialect: Dialect, name: str) -> _Handler:
        async def counted(http: web.Request, session: Served) -> web.StreamResponse:
            wanted, _ = await _read(http, session, dialect)
            return web.json_response({name: await session.conversations.count(wanted.request)})

        return self._handler(dialect, counted)

    def _handler(
        self,
        dialect: Dialect,
        answered: Callable[[web.Request, Served], Awaitable[web.StreamResponse]],
    ) -> _Handler:
        """Return the handler of a route, whose errors all have the form of its API."""

        async def handle(http: web.Request) -> web.StreamResponse:
            try:
                session = self._session(http)
            except _RefusedError as error:
                return _refusal(dialect, error)
            try:
                # A request runs from before its body is read: bodies are what a flood is made of.
                session.running += 1
                try:
                    return await answered(http, session)
                finally:
                    session.running -= 1
            except _RefusedError as error:
                return _refusal(dialect, error)
            except BadRequestError as error:
                return _refusal(dialect, _of(error))
            except RecursionError:
                return _refusal(dialect, _of(BadRequestError("the body is nested too deeply")))
            except Exception as error:
                log.exception("gateway_request_failed")
                session.conversations.fail(error)
                failed = _RefusedError("the gateway failed", status=500, code="internal_error")
                return _refusal(dialect, failed)

        return handle

    def _session(self, http: web.Request) -> Served:
        session = self.sessions.by_key(_key(http))
        if session is None:
            raise _RefusedError("the key is of no open session", status=401, code="invalid_api_key")
        if session.running >= MOST_RUNNING:
            raise _RefusedError(
                f"{MOST_RUNNING} requests of this session are waiting",
                status=429,
                code="rate_limit_exceeded",
                wait_s=1,
            )
        return session


async def _models(http: web.Request, session: Served) -> web.StreamResponse:
    del http, session
    model = {"id": "policy", "object": "model", "created": 0, "owned_by": "swe-rollout"}
    google = {"name": "models/policy"}
    return web.json_response({"object": "list", "data": [model], "models": [google]})


async def _read(http: web.Request, session: Served, dialect: Dialect) -> tuple[Wanted, list[bytes]]:
    """Return what a request wants, and the digests of its conversation."""
    body = await _body(http)

    def read() -> tuple[Wanted, list[bytes]]:
        wanted = dialect.read(body)
        return wanted, session.conversations.digests(wanted.request, len(body))

    if len(body) < _LARGE_BYTES:
        return read()
    async with session.reading:
        return await off_loop(read)


async def _answered(
    http: web.Request, dialect: Dialect, wanted: Wanted, answer: Coroutine[None, None, Answer]
) -> web.StreamResponse:
    asked = asyncio.create_task(answer)
    try:
        # What is refused at once is refused with its status, also where a stream was asked for.
        await asyncio.wait([asked], timeout=_PING_S if wanted.streams else None)
        if wanted.streams and not (asked.done() and asked.exception()):
            return await _streamed(http, dialect, wanted, asked)
        body = dialect.write(await asked, wanted)
        return web.json_response(body=msgspec.json.encode(body))
    except (ConnectionError, TimeoutError):
        # The harness left. What it asked for is there if it asks again.
        return web.Response(status=_GONE)
    finally:
        asked.cancel()


async def _answer(session: Served, wanted: Wanted, digests: list[bytes]) -> Answer:
    try:
        return await session.conversations.answer(wanted.request, digests)
    except BadRequestError as error:
        raise _of(error) from error
    except EndedError as error:
        raise _RefusedError(
            f"the episode is over: {error}", status=403, code="episode_over"
        ) from error
    except SweRolloutError as error:
        raise _RefusedError(
            f"the episode has failed: {error.what}", status=503, code="episode_failed", wait_s=60
        ) from error


async def _streamed(
    http: web.Request, dialect: Dialect, wanted: Wanted, asked: asyncio.Future[Answer]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    response.headers["Cache-Control"] = "no-cache"
    await response.prepare(http)
    while not asked.done():
        await _written(response, dialect.ping)
        await asyncio.wait([asked], timeout=_PING_S)
    try:
        answer = asked.result()
    except _RefusedError as error:
        failed = dialect.error_event(str(error), code=error.code, status=error.status)
        await _written(response, failed)
    else:
        for event in dialect.events(answer, wanted):
            await _written(response, event)
    await response.write_eof()
    return response


async def _written(response: web.StreamResponse, data: bytes) -> None:
    """Write a part of a stream. A harness that does not read it loses its connection."""
    async with asyncio.timeout(_WRITE_S):
        await response.write(data)


async def _body(http: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_READ_S):
            return await http.read()
    except TimeoutError as error:
        raise _RefusedError("the body did not come", status=408, code="timeout") from error
    except ConnectionError as error:
        # A harness may leave at any time, and may ask again.
        raise _RefusedError("the body broke off", status=_GONE, code="gone") from error
    except web.RequestPayloadError as error:
        raise BadRequestError("the body is not encoded as its header says") from error
    except web.HTTPRequestEntityTooLarge as error:
        why = f"the body has more than {MAX_BODY_BYTES >> 20} MiB"
        raise _RefusedError(why, status=413, code="request_too_large") from error


def _key(http: web.Request) -> str:
    """Return the key, from where any of the APIs has it."""
    scheme, _, token = http.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if name in http.headers:
            return http.headers[name]
    return http.query.get("key", "")


def _of(error: BadRequestError) -> _RefusedError:
    return _RefusedError(str(error), status=error.status, code=error.code)


def _refusal(dialect: Dialect, error: _RefusedError) -> web.Response:
    headers = {"Retry-After": str(error.wait_s)} if error.wait_s else None
    body = dialect.error(str(error), code=error.code, status=error.status)
    return web.json_response(body=msgspec.json.encode(body), status=error.status, headers=headers)


@asynccontextmanager
async def serving(routes: Iterable[web.RouteDef]) -> AsyncIterator[int]:
    """Serve routes on a port of this machine's loopback while the block runs; yield the port."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, logger=SILENT, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
