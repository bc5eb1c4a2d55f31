"""SglangEngine: the client of a real SGLang server, or of a router in front of several.

One HTTP call for each generation. A call is tried again only where nothing was sampled that could
be lost: it did not arrive, it was refused for load, or its engine died. The wire is in
`engine.wire`; who decides what happens to the episode is the agent loop and the worker.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, TypeVar

import httpx
import msgspec
import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from swe_rollout.engine import wire
from swe_rollout.engine.base import EngineInfo, TokenEngine
from swe_rollout.errors import (
    EngineError,
    InternalError,
    PrerequisiteError,
    UnreachableError,
)

if TYPE_CHECKING:
    from swe_rollout.engine.base import GenerateRequest
    from swe_rollout.spec.job import SglangPolicy
    from swe_rollout.tokens import InputIds
    from swe_rollout.trajectory import EpisodeId, Generation

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

CONNECT_S = 10.0
ABORT_S = 5.0
LONGEST_WAIT_S = 60.0


class _TimedOutError(wire.EngineLostError):
    """One generation took too long; trying at once again would take as long."""


class SglangEngine(TokenEngine):
    """Samples from an SGLang server by its native `/generate`. Safe for concurrent calls."""

    def __init__(
        self, policy: SglangPolicy, *, vocab_size: int, first_backoff_s: float = 0.5
    ) -> None:
        """`vocab_size` bounds ids both ways: one beyond the model's kills a real server."""
        self._policy = policy
        self._vocab_size = vocab_size
        self._wait = wait_exponential(multiplier=first_backoff_s, max=LONGEST_WAIT_S) + wait_random(
            0, first_backoff_s
        )
        self._http = httpx.AsyncClient(
            base_url=policy.url or policy.workers[0],
            headers=_authorization(policy.api_key_env),
            timeout=httpx.Timeout(policy.timeout_seconds, connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )
        self._info: EngineInfo | None = None
        self._info_lock = asyncio.Lock()
        self._aborts: set[asyncio.Task[None]] = set()

    async def info(self) -> EngineInfo:
        """The model served, asked anew; raises UnreachableError when the engine is not there."""
        try:
            self._info = await self._ask_info()
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"no engine answers at {self._policy.url}",
                why=_describe(error),
                fix="start the server, or set spec.policy.sglang.url to where it listens",
            ) from error
        except EngineError as error:
            raise UnreachableError(
                f"the engine at {self._policy.url} can't be used: {error.what}",
                why=error.why,
                fix=error.fix,
            ) from error
        return self._info

    async def generate(self, request: GenerateRequest) -> Generation:
        """Sample one turn; raises an EngineError of `engine.wire` when that fails for good."""
        self._check_ids(request.input_ids)
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(self._policy.retries + 1),
            wait=self._wait_s,
            retry=retry_if_exception(_is_worth_another_try),
            reraise=True,
        ):
            with attempt:
                return await self._attempt(request, attempt.retry_state.attempt_number)
        raise InternalError("a call ended without an answer and without an error")

    def forget(self, episode: EpisodeId) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Let the last aborts out, then close the connections."""
        await asyncio.gather(*self._aborts)
        await self._http.aclose()

    async def _attempt(self, request: GenerateRequest, number: int) -> Generation:
        rid = uuid.uuid4().hex
        try:
            max_new_tokens = await self._max_new_tokens(request)
            response = await self._post(request, rid, max_new_tokens)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise wire.EngineLostError(
                "the engine can't be reached", why=_describe(error), fix="start the engine"
            ) from error
        except httpx.HTTPError as error:
            # The call may still be running: it must not sample beside its successor.
            await self._abort(rid)
            raise self._lost(error) from error
        if response.status_code == httpx.codes.OK:
            return wire.decode_answer(
                response.content,
                prompt_tokens=len(request.input_ids),
                vocab_size=self._vocab_size,
            )
        failure = wire.refusal(
            response.status_code,
            response.content,
            retry_after=response.headers.get("Retry-After"),
        )
        _log.warning(
            "engine_refused", episode=str(request.episode), attempt=number, error=str(failure)
        )
        if isinstance(failure, wire.EngineLostError):
            await self._abort(rid)
        raise failure

    async def _post(
        self, request: GenerateRequest, rid: str, max_new_tokens: int
    ) -> httpx.Response:
        headers = {
            "Content-Type": "application/json",
            wire.ROUTING_HEADER: wire.routing_key(request.episode),
        }
        body = wire.encode_request(request, rid=rid, max_new_tokens=max_new_tokens)
        try:
            return await self._http.post("/generate", content=body, headers=headers)
        except asyncio.CancelledError:
            self._abort_later(rid)
            raise

    def _lost(self, error: httpx.HTTPError) -> wire.EngineLostError:
        if isinstance(error, httpx.ReadTimeout):
            return _TimedOutError(
                f"no answer within {self._policy.timeout_seconds:g} s",
                why=_describe(error),
                fix="raise spec.policy.sglang.timeoutSeconds, or lower spec.limits.maxNewTokens",
            )
        return wire.EngineLostError("the engine was lost under a call", why=_describe(error))

    def _wait_s(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        if isinstance(failure, wire.UnavailableError) and failure.retry_after_s is not None:
            return min(failure.retry_after_s, LONGEST_WAIT_S)
        return self._wait(state)

    def _check_ids(self, input_ids: InputIds) -> None:
        if not len(input_ids):
            raise InternalError("a request has no input ids")
        lowest, highest = input_ids.ids.min(), input_ids.ids.max()
        if lowest < 0 or highest >= self._vocab_size:
            raise InternalError(
                f"input ids reach from {lowest} to {highest}, outside [0, {self._vocab_size})",
                why="such an id kills the server; nothing was sent",
                fix="check that the tokenizer is the model's own",
            )

    async def _max_new_tokens(self, request: GenerateRequest) -> int:
        """The request's own bound, clipped to what the engine's context still holds."""
        async with self._info_lock:
            if self._info is None:
                self._info = await self._ask_info()
            context_tokens = self._info.context_tokens
        if context_tokens is None:
            return request.max_new_tokens
        room = context_tokens - len(request.input_ids)
        if room < 1:
            raise wire.ContextOverflowError(
                f"{len(request.input_ids)} input tokens fill the context of {context_tokens}"
            )
        return min(request.max_new_tokens, room)

    async def _ask_info(self) -> EngineInfo:
        model = await self._get("/model_info", wire.ModelInfo)
        if model is None:
            model = await self._get("/get_model_info", wire.ModelInfo)
        if model is None:
            raise wire.refusal(httpx.codes.NOT_FOUND, b"neither /model_info nor /get_model_info")
        return EngineInfo(
            model=model.served_model_name or model.model_path,
            context_tokens=await self._context_tokens(),
            vocab_size=None,
            weight_version=model.weight_version,
            tokenizer=model.tokenizer_path or model.model_path,
        )

    async def _context_tokens(self) -> int | None:
        """Tokens of prompt and completion that the engine surely takes.

        Where it says how long an input it takes, that is the bound, a few tokens below the model's
        context. Older engines say the context, in one of two places.
        """
        try:
            server = await self._get("/server_info", wire.ServerInfo)
            if server is not None and (told := server.max_req_input_len or server.context_length):
                return told
            models = await self._get("/v1/models", wire.ModelList)
        except httpx.HTTPError as error:
            _log.warning("context_length_unknown", why=_describe(error))
            return None
        return models.data[0].max_model_len if models and models.data else None

    async def _get(self, path: str, kind: type[_T]) -> _T | None:
        """The decoded answer; none when this server does not know the path."""
        response = await self._http.get(path, timeout=CONNECT_S)
        match response.status_code:
            case 200:
                try:
                    return msgspec.json.decode(response.content, type=kind)
                except msgspec.DecodeError as error:
                    _log.warning("engine_info_unreadable", path=path, why=str(error))
                    return None
            case 404:
                return None
            case status:
                raise wire.refusal(status, response.content)

    def _abort_later(self, rid: str) -> None:
        task = asyncio.create_task(self._abort(rid))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _abort(self, rid: str) -> None:
        """Best effort: routers don't know it, and a closed connection aborts there too."""
        try:
            await self._http.post("/abort_request", json={"rid": rid}, timeout=ABORT_S)
        except httpx.HTTPError as error:
            _log.info("abort_failed", rid=rid, why=_describe(error))


def _is_worth_another_try(error: BaseException) -> bool:
    match error:
        case _TimedOutError():
            return False
        case wire.UnavailableError() | wire.EngineLostError():
            return True
        case _:
            return False


def _authorization(api_key_env: str | None) -> dict[str, str]:
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key:
        raise PrerequisiteError(
            f"the engine's key is missing: ${api_key_env} is not set",
            fix=f"export {api_key_env}=... here, or leave out spec.policy.sglang.apiKeyEnv",
        )
    return {"Authorization": f"Bearer {key}"}


def _describe(error: Exception) -> str:
    # httpx gives some errors no text at all.
    return f"{type(error).__name__}: {error}".rstrip(": ")
