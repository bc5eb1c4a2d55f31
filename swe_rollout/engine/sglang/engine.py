"""SglangEngine: the client of one SGLang server, or of a router in front of several.

Each generation is one HTTP call. A call is retried here only if the server is up and nothing
sampled could be lost: the server was full, or failed internally. Servers that are down are left to
`pool.pool`, which jobs use. Messages are in `sglang.protocol` and `sglang.responses`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import structlog
from tenacity import wait_exponential, wait_random

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.errors import (
    BadRequestError,
    CallLoss,
    ContextOverflowError,
    EngineLostError,
    Retries,
    UnavailableError,
    stopped_clock,
)
from swe_rollout.engine.pool.calls import InFlightCalls
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.connection import OK, UNKNOWN_PATH, EngineConnection, EngineResponse
from swe_rollout.engine.sglang.responses import decode_response
from swe_rollout.errors import EngineError, InternalError, UnreachableError
from swe_rollout.spec.policy import SglangPolicy
from swe_rollout.text.redaction import redact
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.turn import Generation

log = structlog.get_logger()
_T = TypeVar("_T")

ABORT_S = 2.0
MAX_WAIT_S = 60.0


class _Limits(NamedTuple):
    """What one server takes; None where it does not say."""

    context_tokens: int | None
    cache_tokens: int | None


class SglangEngine(TokenEngine):
    """Samples from an SGLang server by its native `/generate`. Safe for concurrent calls."""

    def __init__(
        self,
        policy: SglangPolicy,
        *,
        vocab_size: int,
        url: str | None = None,
        first_backoff_s: float = 0.5,
    ) -> None:
        """Bound ids both ways by `vocab_size`: an id beyond the model's kills a real server.

        `url` is one of the policy's addresses; by default the first.
        """
        self.url = url or policy.address
        self.calls = InFlightCalls()
        """The calls in flight."""
        self.cache_tokens: int | None = None
        """The KV cache of all servers behind the address, as of the last `info`; None if unknown
        or not worth keeping within."""
        self._policy = policy
        self._vocab_size = vocab_size
        self._retries = Retries(
            policy.retries,
            backoff=wait_exponential(multiplier=first_backoff_s, max=MAX_WAIT_S),
            jitter=wait_random(0, first_backoff_s),
            max_wait_s=MAX_WAIT_S,
        )
        self._connection = EngineConnection(self.url, api_key_env=policy.api_key_env)
        self._workers = [self._connection]
        self._info: EngineInfo | None = None
        self._info_lock = asyncio.Lock()
        self._aborts: set[asyncio.Task[None]] = set()

    async def info(self) -> EngineInfo:
        try:
            self._info = await self._ask_info()
        except EngineLostError as error:
            raise UnreachableError(
                f"no engine responds at {self.url}",
                why=error.why,
                fix="write http:// if the server has no TLS"
                if "WRONG_VERSION_NUMBER" in error.why
                else "start the server, or set spec.policy.sglang.url to where it listens",
            ) from error
        except EngineError as error:
            raise UnreachableError(
                f"the engine at {self.url} can't be used: {error.what}",
                why=error.why,
                fix=error.fix,
            ) from error
        return self._info

    async def generate(self, request: GenerateRequest) -> Generation:
        self._check_ids(request.input_ids)
        # The pool waits for servers that are down.
        return await self._retries.run(partial(self._attempt, request), request.clock)

    def discard_info(self) -> None:
        """Query the context again before the next call: another engine may have taken over."""
        self._info = None

    def set_workers(self, urls: Iterable[str]) -> None:
        """Send aborts and context queries to the servers behind this router."""
        key = self._policy.api_key_env
        self._workers = [EngineConnection(url, api_key_env=key) for url in urls]

    async def aclose(self) -> None:
        """Send the remaining aborts, then close the connections."""
        await asyncio.gather(*self._aborts)
        await asyncio.gather(*(each.aclose() for each in {self._connection, *self._workers}))

    async def _attempt(self, request: GenerateRequest, number: int) -> Generation:
        most = await self._max_new_tokens(request)
        if most != request.max_new_tokens:
            request = replace(request, max_new_tokens=most)
        rid = uuid.uuid4().hex
        try:
            return await self._call(request, rid)
        except asyncio.CancelledError:
            self._start_abort(rid)
            raise
        except UnavailableError as error:
            self._log_failure(request, number, error)
            raise
        except EngineLostError as lost:
            self._log_failure(request, number, lost)
            match lost.loss:
                case CallLoss.UNREACHABLE:
                    pass
                case CallLoss.UNRESPONSIVE:
                    self._start_abort(rid)
                case _:
                    # The call may still be running: end it before repeating it.
                    with stopped_clock(request.clock):
                        await self._abort(rid)
            raise

    async def _call(self, request: GenerateRequest, rid: str) -> Generation:
        body = protocol.encode_request(request, rid=rid, max_new_tokens=request.max_new_tokens)
        headers = {protocol.ROUTING_HEADER: protocol.routing_key(request.episode)}
        async with self.calls.track(request.clock, timeout_s=self._policy.timeout_seconds):
            response = await self._connection.post(
                "/generate", body, headers=headers, max_bytes=protocol.max_response_bytes(request)
            )
            if response.status != OK:
                raise protocol.error_from_response(
                    response.status, response.body, retry_after=response.retry_after
                )
            return decode_response(response.body, request, vocab_size=self._vocab_size)

    def _log_failure(self, request: GenerateRequest, number: int, error: EngineError) -> None:
        episode = str(request.episode)
        log.warning(
            "engine_call_failed", episode=episode, url=self.url, attempt=number, error=str(error)
        )

    def _check_ids(self, input_ids: InputIds) -> None:
        if not len(input_ids):
            raise InternalError("a request has no input ids")
        ids = input_ids.ids
        # A negative id is a large one without its sign.
        if ids.view("u4").max() >= self._vocab_size:
            raise InternalError(
                f"input ids range from {ids.min()} to {ids.max()}, outside [0, {self._vocab_size})",
                why="such an id kills the server; nothing was sent",
                fix="check that the tokenizer is the model's own",
            )

    async def _max_new_tokens(self, request: GenerateRequest) -> int:
        """Limit the requested number to what still fits into the engine's context."""
        info = self._info or await self._first_info()
        if info.context_tokens is None:
            return request.max_new_tokens
        room = info.context_tokens - len(request.input_ids)
        if room < 1:
            raise ContextOverflowError(
                f"{len(request.input_ids)} input tokens fill the context of {info.context_tokens}"
            )
        return min(request.max_new_tokens, room)

    async def _first_info(self) -> EngineInfo:
        async with self._info_lock:
            if self._info is None:
                self._info = await self._ask_info()
            return self._info

    async def _ask_info(self) -> EngineInfo:
        response = await self._connection.model_info()
        if response.status == UNKNOWN_PATH:
            raise protocol.error_from_response(
                UNKNOWN_PATH, b"neither /model_info nor /get_model_info"
            )
        model = _decoded(response, protocol.ModelInfo)
        if model is None:
            raise BadRequestError(
                "the address does not say which model it serves",
                why=f"what /model_info answers ({response.content_type}) has no usable model_path",
                fix="check spec.policy.sglang.url: it is the root of an SGLang server or router",
            )
        return EngineInfo(
            model=redact(model.served_model_name or model.model_path),
            context_tokens=await self._context_tokens(),
            vocab_size=None,
            weight_version=model.weight_version and redact(model.weight_version),
            tokenizer=redact(model.tokenizer_path or model.model_path),
        )

    async def _context_tokens(self) -> int | None:
        """Return the smallest context of all servers; None if none reports it."""
        found = await asyncio.gather(*map(self._limits_of, self._workers))
        caches = [each.cache_tokens for each in found]
        self.cache_tokens = sum(filter(None, caches)) if all(caches) else None
        return min(filter(None, (each.context_tokens for each in found)), default=None)

    async def _limits_of(self, server: EngineConnection) -> _Limits:
        """Return the longest input that the server accepts, and its cache, as it reports them.

        The input is a few tokens shorter than the model's context. Older servers report only the
        context, in one of two places.
        """
        try:
            info = _decoded(await server.get("/server_info"), protocol.ServerInfo)
            cache = None if info is None else info.cache_tokens
            if info is not None and (tokens := info.max_req_input_len or info.context_length):
                return _Limits(tokens, cache)
            models = _decoded(await server.get("/v1/models"), protocol.ModelList)
        except EngineLostError as lost:
            if server is self._connection:
                raise
            log.info("context_length_unknown", url=server.url, why=str(lost))
            return _Limits(None, None)
        return _Limits(models.data[0].max_model_len if models and models.data else None, cache)

    def _start_abort(self, rid: str) -> None:
        task = asyncio.create_task(self._abort(rid))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _abort(self, rid: str) -> None:
        """Abort the call, best effort; its closed connection aborts it too, seconds later."""
        body = msgspec.json.encode({"rid": rid})
        calls = (each.post("/abort_request", body, timeout_s=ABORT_S) for each in self._workers)
        for failed in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(failed, EngineLostError):
                log.info("abort_failed", rid=rid, why=str(failed))
            elif isinstance(failed, BaseException):
                raise failed


def _decoded(response: EngineResponse, kind: type[_T]) -> _T | None:
    """Decode a server's information about itself; None if it does not know the path."""
    if response.status == UNKNOWN_PATH:
        return None
    if response.status != OK:
        raise protocol.error_from_response(
            response.status, response.body, stranger=response.content_type
        )
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        log.warning("engine_info_unreadable", kind=kind.__name__, why=type(error).__name__)
        return None
