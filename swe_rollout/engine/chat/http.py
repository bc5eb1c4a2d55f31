"""HttpChatEngine: call a chat API, with retries. The format is a `ChatFormat`.

An API may have several servers. Each episode stays on one, whose prefix cache holds its prompt, and
moves if it can't be reached. Calls are retried depending on the status: after the API's Retry-After
or else a growing pause, both with jitter, so that refused episodes do not come back at once. The
episode's clock is stopped meanwhile: the wait is not its fault.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
from tenacity import wait_exponential, wait_random

from swe_rollout.engine.base import EngineInfo
from swe_rollout.engine.chat import anthropic, openai
from swe_rollout.engine.chat.base import ChatEngine, ChatRequest, ChatResponse
from swe_rollout.engine.chat.errors import error_from_response
from swe_rollout.engine.errors import (
    MAX_BODY_BYTES,
    SERVER_ERROR,
    CallLoss,
    EngineLostError,
    Retries,
    is_retryable,
)
from swe_rollout.engine.pool.affinity import Affinity
from swe_rollout.engine.sglang.connection import OK, EngineConnection
from swe_rollout.errors import EngineError, UnreachableError
from swe_rollout.spec.policy import AnthropicPolicy, ChatApi, OpenaiPolicy
from swe_rollout.types.episode import EpisodeId

log = structlog.get_logger()

MAX_WAIT_S: Final = 120.0
"""The longest pause before another attempt, whatever the API asks for."""
_TOKEN_BYTES: Final = 512
"""Bytes that one token of a response may take, as escaped text of the message or reasoning."""
_LOST_S: Final = 30.0
"""How long an unreachable server is skipped, if there are others."""
_FRESH_S: Final = 60.0
"""How long a successful call stands in for a probe."""
_BAD_KEY: Final = (401, 403)
SENT_AGAIN: Final = (CallLoss.UNREACHABLE, CallLoss.DROPPED, CallLoss.FAILED)
"""The ways of losing a call after which it may be sent again."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The format of one API."""

    name: str
    """The API's name in records."""
    path: str
    probe_path: str
    """The path to read to check that the API is there and accepts the key; costs nothing."""
    encode: Callable[[ChatRequest], bytes]
    decode: Callable[[bytes], ChatResponse]
    key_header: str = "Authorization"
    headers: tuple[tuple[str, str], ...] = ()


def openai_format(policy: OpenaiPolicy) -> ChatFormat:
    """Return the format of OpenAI's chat completions."""
    return ChatFormat(
        name="openai",
        path="/chat/completions",
        probe_path="/models",
        encode=lambda request: openai.encode_request(
            request, model=policy.model, max_tokens_field=policy.max_tokens_field
        ),
        decode=openai.decode_response,
    )


def anthropic_format(policy: AnthropicPolicy) -> ChatFormat:
    """Return the format of Anthropic's messages."""
    return ChatFormat(
        name="anthropic",
        path="/v1/messages",
        probe_path="/v1/models",
        encode=lambda request: anthropic.encode_request(
            request, model=policy.model, prompt_cache=policy.prompt_cache
        ),
        decode=anthropic.decode_response,
        key_header="x-api-key",
        headers=(("anthropic-version", anthropic.VERSION),),
    )


def http_engine(policy: OpenaiPolicy | AnthropicPolicy) -> HttpChatEngine:
    """Create the engine of an API. Raises PrerequisiteError if the key's variable is not set."""
    match policy:
        case OpenaiPolicy():
            return HttpChatEngine(policy, openai_format(policy), urls=policy.urls or (policy.url,))
        case AnthropicPolicy():
            return HttpChatEngine(policy, anthropic_format(policy), urls=(policy.url,))


class HttpChatEngine(ChatEngine):
    """Calls one API, on one server or several. Safe for concurrent calls."""

    def __init__(
        self,
        policy: ChatApi,
        form: ChatFormat,
        *,
        urls: Sequence[str],
        first_backoff_s: float = 1.0,
    ) -> None:
        """`urls` are the addresses of at least one server.

        Raises PrerequisiteError when the key's variable is not set.
        """
        self._policy = policy
        self._form = form
        self._servers = {
            url: EngineConnection(
                url,
                api_key_env=policy.api_key_env,
                key_header=form.key_header,
                headers=dict(form.headers),
                proxy=_proxy_of(url),
            )
            for url in urls
        }
        self._affinity = Affinity()
        self._lost_until: dict[str, float] = {}
        self._succeeded_at = -math.inf
        self._retries = Retries(
            policy.retries,
            backoff=wait_exponential(multiplier=first_backoff_s, max=MAX_WAIT_S),
            jitter=wait_random(0, first_backoff_s),
            max_wait_s=MAX_WAIT_S,
            may_succeed=partial(is_retryable, losses=SENT_AGAIN),
        )
        self._calls = asyncio.Semaphore(policy.concurrency)

    async def info(self) -> EngineInfo:
        info = EngineInfo(
            self._policy.model, context_tokens=None, vocab_size=None, weight_version=None
        )
        # A successful call proves as much, and probes of many workers count against rate limits.
        if time.monotonic() - self._succeeded_at < _FRESH_S:
            return info
        probes = (self._probe(server) for server in self._servers.values())
        found = await asyncio.gather(*probes, return_exceptions=True)
        errors = [each for each in found if isinstance(each, BaseException)]
        if len(errors) == len(found):
            raise errors[0]
        return info

    async def _probe(self, server: EngineConnection) -> None:
        """Raise UnreachableError unless the server is there and accepts the key."""
        try:
            response = await server.get(self._form.probe_path)
        except EngineLostError as error:
            raise UnreachableError(error.what, why=error.why, fix=error.fix) from error
        # Servers without a list of models are available all the same.
        if response.status in _BAD_KEY or response.status >= SERVER_ERROR:
            # The body is not quoted: whoever wrote the address might not be allowed to read it.
            refusal = error_from_response(response.status, b"")
            raise UnreachableError(
                f"the API at {server.url} can't be used: {refusal.what}",
                why=f"HTTP {response.status}",
                fix=refusal.fix,
            )

    async def respond(self, request: ChatRequest) -> ChatResponse:
        body = self._form.encode(request)

        async def call(number: int) -> ChatResponse:
            try:
                return await self._call(request, body)
            except EngineError as error:
                log.warning(
                    "engine_call_failed",
                    episode=str(request.episode),
                    url=self._affinity.url_of(request.episode),
                    attempt=number,
                    error=str(error),
                )
                raise

        return await self._retries.run(call, request.clock)

    def release(self, episode: EpisodeId) -> None:
        self._affinity.release(episode)

    async def aclose(self) -> None:
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    def _server_of(self, episode: EpisodeId) -> str:
        now = time.monotonic()
        up = [url for url in self._servers if self._lost_until.get(url, 0.0) <= now]
        kept = self._affinity.url_of(episode)
        if kept in up:
            return kept
        return self._affinity.assign(episode, dict.fromkeys(up or self._servers, 0))

    async def _call(self, request: ChatRequest, body: bytes) -> ChatResponse:
        async with self._calls:
            url = self._server_of(request.episode)
            try:
                response = await self._servers[url].post(
                    self._form.path,
                    body,
                    timeout_s=self._policy.timeout_seconds,
                    max_bytes=MAX_BODY_BYTES + _TOKEN_BYTES * request.max_new_tokens,
                )
            except EngineLostError as error:
                self._succeeded_at = -math.inf
                if error.loss is CallLoss.UNREACHABLE:
                    self._lost_until[url] = time.monotonic() + _LOST_S
                raise
        if response.status != OK:
            raise error_from_response(
                response.status,
                response.body,
                retry_after=response.retry_after,
                date=response.date,
            )
        found = self._form.decode(response.body)
        self._succeeded_at = time.monotonic()
        return found


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment sets for an address, if any."""
    target = urlsplit(url)
    if proxy_bypass(target.hostname or ""):
        return None
    found = getproxies().get(target.scheme)
    return f"http://{found}" if found and "://" not in found else found
