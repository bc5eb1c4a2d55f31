"""SGLangClient: the client of a server or router, with connections for each event loop.

An agent's turns go through `engine`, our own client with its retries, aborts and checks of requests
and responses. `generate` is the plain call, for text that nobody trains on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from types import TracebackType
from typing import Final, Protocol, Self
from weakref import WeakSet, finalize

import msgspec
from tenacity import wait_none, wait_random

from swe_rollout.engine.errors import EngineLostError, InvalidAnswerError, Retries
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.engine.sglang.connection import OK, EngineConnection
from swe_rollout.engine.sglang.protocol import error_from_response
from swe_rollout.errors import EngineError
from swe_rollout.integrations.strands.exceptions import (
    SGLangConnectionError,
    SGLangThrottledError,
    client_error,
)
from swe_rollout.launcher.sync import held, let_go
from swe_rollout.spec.bounds import MAX_SECONDS
from swe_rollout.spec.policy import SglangPolicy

MAX_CONNECTIONS: Final = 1000
TIMEOUT_S: Final = 900.0
MAX_RETRIES: Final = 60
RETRY_DELAY_S: Final = 1.0
_MAX_RESPONSE_BYTES: Final = 256 * 2**20
_ABORT_S: Final = 2.0


class SlimeArgs(Protocol):
    """The training arguments of slime that are read here."""

    sglang_router_ip: str
    sglang_router_port: int
    sglang_server_concurrency: int
    rollout_num_gpus: int
    rollout_num_gpus_per_engine: int


class SGLangClient:
    """A client for one address. Safe for concurrent calls, also from several event loops.

    Connections are opened by the first call in a loop and closed with the loop, or by `close`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        max_connections: int = MAX_CONNECTIONS,
        timeout: float | None = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        retry_delay: float = RETRY_DELAY_S,
        api_key_env: str | None = None,
    ) -> None:
        """Prepare a client; no connection is opened.

        `max_connections` bounds concurrent calls; further ones wait here. `timeout` is the time of
        one generation in seconds; None sets no limit. A server that is full is tried again
        `max_retries` times. One that is down is waited for as long as so many tries, `retry_delay`
        seconds apart, would take. `api_key_env` is the variable that holds the server's key.
        """
        self.base_url = base_url.rstrip("/")
        self.max_retries = max_retries
        self.retry_delay = retry_delay
        self._policy = SglangPolicy(
            url=self.base_url,
            api_key_env=api_key_env,
            concurrency=max_connections,
            timeout_seconds=MAX_SECONDS if timeout is None else timeout,
            retries=max_retries,
            outage_seconds=min(MAX_SECONDS, max(1.0, max_retries * retry_delay)),
        )
        self._key = object()
        self._loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        finalize(self, _close_soon, self._key, self._loops).atexit = False
        self._retries = Retries(
            max_retries,
            backoff=wait_random(retry_delay / 2, retry_delay * 1.5),
            jitter=wait_none(),
            max_wait_s=MAX_SECONDS,
            may_succeed=_is_tried_again,
        )
        self._is_multimodal: bool | None = None

    async def engine(self, vocab_size: int) -> EnginePool:
        """Return the engine of the running loop; `vocab_size` bounds ids both ways."""
        pools = (await self._opened()).pools
        if vocab_size not in pools:
            pools[vocab_size] = EnginePool(self._policy, vocab_size=vocab_size)
        return pools[vocab_size]

    async def generate(self, input_ids: Sequence[int], **options: object) -> dict[str, object]:
        """Call `/generate` without streaming, and return the response unchanged.

        `options` are fields of the request. Raises an SGLangClientError; a call that was refused
        for load or lost is retried.
        """
        opened = await self._opened()
        call = partial(self._generate, opened.connection, input_ids, options)
        try:
            return await self._retries.run(call, None)
        except EngineError as error:
            raise client_error(error) from error

    async def health(self) -> bool:
        """Whether the server reports that it is healthy."""
        try:
            return (await (await self._opened()).connection.get("/health")).status == OK
        except EngineLostError:
            return False

    async def model_info(self) -> dict[str, object] | None:
        """Return the server's information about its model; None if it does not respond."""
        try:
            response = await (await self._opened()).connection.get("/model_info")
        except EngineLostError:
            return None
        return _object(response.body) if response.status == OK else None

    get_model_info = model_info

    async def is_multimodal(self) -> bool:
        """Whether the server's model reads images; asked until the server has responded once."""
        if self._is_multimodal is None:
            info = await self.model_info()
            if info is None:
                return False
            self._is_multimodal = bool(info.get("has_image_understanding", False))
        return self._is_multimodal

    async def close(self) -> None:
        """Close the connections of the running loop; the next call opens others."""
        await let_go([self._key])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _generate(
        self,
        connection: EngineConnection,
        input_ids: Sequence[int],
        options: Mapping[str, object],
        attempt: int,
    ) -> dict[str, object]:
        del attempt
        rid = uuid.uuid4().hex
        body = {**options, "input_ids": list(input_ids), "rid": rid, "stream": False}
        try:
            response = await connection.post(
                "/generate",
                msgspec.json.encode(body),
                timeout_s=self._policy.timeout_seconds,
                max_bytes=_MAX_RESPONSE_BYTES,
            )
        except (EngineLostError, asyncio.CancelledError):
            # It may still be running.
            await asyncio.shield(_abort(connection, rid))
            raise
        if response.status != OK:
            raise error_from_response(response.status, response.body)
        found = _object(response.body)
        if found is None:
            raise InvalidAnswerError("the engine's response is not a JSON object")
        return found

    async def _opened(self) -> _Open:
        self._loops.add(asyncio.get_running_loop())
        return await held(self._key, partial(_open, self.base_url, self._policy.api_key_env))


@dataclass(frozen=True, slots=True)
class _Open:
    """The open connections of an event loop."""

    connection: EngineConnection
    pools: dict[int, EnginePool] = field(default_factory=dict)
    """The engines by vocabulary size."""


@asynccontextmanager
async def _open(base_url: str, api_key_env: str | None) -> AsyncIterator[_Open]:
    opened = _Open(EngineConnection(base_url, api_key_env=api_key_env))
    try:
        yield opened
    finally:
        pools = opened.pools.values()
        await asyncio.gather(opened.connection.aclose(), *(pool.aclose() for pool in pools))


def _close_soon(key: object, loops: WeakSet[asyncio.AbstractEventLoop]) -> None:
    """Close what a garbage-collected client left open in loops that still run."""
    for loop in tuple(loops):
        if loop.is_running():
            loop.call_soon_threadsafe(lambda: asyncio.ensure_future(let_go([key])))


def _is_tried_again(error: BaseException) -> bool:
    again = (SGLangThrottledError, SGLangConnectionError)
    return isinstance(error, EngineError) and isinstance(client_error(error), again)


async def _abort(connection: EngineConnection, rid: str) -> None:
    try:
        body = msgspec.json.encode({"rid": rid})
        await connection.post("/abort_request", body, timeout_s=_ABORT_S)
    except EngineLostError:
        return


def _object(body: bytes) -> dict[str, object] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@cache
def get_client(
    base_url: str,
    *,
    max_connections: int = MAX_CONNECTIONS,
    timeout: float | None = TIMEOUT_S,
    max_retries: int = MAX_RETRIES,
    retry_delay: float = RETRY_DELAY_S,
) -> SGLangClient:
    """Return the client of an address; the same arguments give the same client."""
    return SGLangClient(
        base_url,
        max_connections=max_connections,
        timeout=timeout,
        max_retries=max_retries,
        retry_delay=retry_delay,
    )


def get_client_from_slime_args(
    args: SlimeArgs,
    *,
    timeout: float | None = TIMEOUT_S,
    max_retries: int = MAX_RETRIES,
    retry_delay: float = RETRY_DELAY_S,
) -> SGLangClient:
    """Return the client of slime's router, with slime's own limit on concurrent calls."""
    gpus = args.rollout_num_gpus
    bound = args.sglang_server_concurrency * gpus // args.rollout_num_gpus_per_engine
    return get_client(
        f"http://{args.sglang_router_ip}:{args.sglang_router_port}",
        max_connections=max(1, bound),
        timeout=timeout,
        max_retries=max_retries,
        retry_delay=retry_delay,
    )
