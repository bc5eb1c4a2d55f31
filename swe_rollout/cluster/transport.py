"""HTTP to the API server: one connection pool, credentials on each request, retries, typed errors.

Verbs are in `client`, watches in `watch`, exec streams in `exec`. Requests that fail for load or
for the network are repeated until `patience_s` is over, so all of them must bear repetition:
creates do by their fixed names, deletes by the uid they name.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, ParamSpec, TypedDict, TypeVar

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay
from yarl import URL

from swe_rollout.cluster.api_error import TRANSIENT, ApiError, api_error
from swe_rollout.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from ssl import SSLContext

    from swe_rollout.cluster.config import Access

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_S = 10.0
ANSWER_S = 40.0
"""Longer than an admission webhook may take."""
WATCH_SILENCE_S = 75.0
"""Bookmarks come every minute: longer silence means a dead socket."""
HANDSHAKE_S = 20.0
REQUESTS_AT_ONCE = 32
HANDSHAKES_AT_ONCE = 64
"""Exec is outside the API server's own flow control: nothing else protects it and the kubelets."""
MAX_BACKOFF_S = 15.0

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
"""A server-side apply; JSON is YAML too."""
_RETRIED = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class _Route(TypedDict):
    """How each request reaches the server."""

    headers: dict[str, str]
    ssl: SSLContext | bool
    server_hostname: str | None
    proxy: str | None


class Transport:
    """Requests, event streams and WebSockets to one API server."""

    def __init__(self, access: Access, *, patience_s: float = 60.0) -> None:
        """`patience_s` is how long a request is repeated before its failure counts."""
        self.access = access
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._requests = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)

    async def request(
        self, method: str, path: str, *, doing: str, body: bytes = b"", content_type: str = JSON
    ) -> bytes:
        """The answer's body; raises ApiError, or UnreachableError when none came in time."""
        sent = await self.access.credentials.headers()
        call = partial(self._request, method, path, doing, body, content_type)
        try:
            return await self._patiently(self._patience_s, call)
        except ApiError as error:
            if not error.unauthorized or not await self.access.credentials.renewed(sent):
                raise
        return await call()

    @asynccontextmanager
    async def lines(self, path: str, *, doing: str) -> AsyncIterator[aiohttp.StreamReader]:
        """A streamed answer; silence raises TimeoutError, a lost connection ClientError."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=WATCH_SILENCE_S)
        async with self._open().get(
            self._url(path), timeout=timeout, **await self._route()
        ) as answer:
            if answer.status != HTTPStatus.OK:
                raise api_error(doing, answer.status, await answer.read())
            try:
                yield answer.content
            finally:
                _cut(answer)

    async def websocket(
        self, path: str, *, doing: str, protocols: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        """An open WebSocket without a bound on message size.

        Silence is a ClusterError: the node behind the server may be what does not answer.
        """
        patience_s = min(self._patience_s, HANDSHAKE_S)
        try:
            return await self._patiently(patience_s, self._handshake, path, doing, protocols)
        except UnreachableError as error:
            raise ClusterError(f"nothing answered to {doing}", why=error.why) from error

    async def aclose(self) -> None:
        """Close every connection, for good."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _patiently(
        self, patience_s: float, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Make the call until it succeeds, fails for good, or `patience_s` is over."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_delay(patience_s),
            wait=_backoff,
            reraise=True,
        )
        try:
            return await retrying(call, *args, **kwargs)
        except _RETRIED as error:
            raise self._unreachable(error) from error

    async def _request(
        self, method: str, path: str, doing: str, body: bytes, content_type: str
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=ANSWER_S)
        route = await self._route()
        route["headers"] = {**route["headers"], "Accept": JSON, "Content-Type": content_type}
        async with (
            self._requests,
            self._open().request(
                method, self._url(path), data=body or None, timeout=timeout, **route
            ) as answer,
        ):
            data = await answer.read()
            if answer.status < HTTPStatus.BAD_REQUEST:
                return data
            error = api_error(doing, answer.status, data)
            error.retry_after_s = _seconds(answer.headers.get("Retry-After", ""))
            raise error

    async def _handshake(
        self, path: str, doing: str, protocols: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        try:
            async with self._handshakes, asyncio.timeout(HANDSHAKE_S):
                return await self._open().ws_connect(
                    self._url(path),
                    protocols=protocols,
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                    **await self._route(),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise api_error(doing, error.status, error.message.encode()) from error

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ClusterError(
                "the client of the cluster is closed",
                fix="keep the sandbox provider open for as long as its sandboxes are used",
                retryable=False,
            )
        if self._session is None:
            # Watches and exec streams hold a connection each: the pool itself must not be bounded.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session

    def _url(self, path: str) -> URL:
        return URL(self.access.server + path, encoded=True)

    async def _route(self) -> _Route:
        return _Route(
            headers=await self.access.credentials.headers(),
            ssl=self.access.tls or True,
            server_hostname=self.access.tls_server_name,
            proxy=self.access.proxy,
        )

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"the Kubernetes API server {self.access.server} does not answer",
            why=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
            fix="check it with `kubectl version`; choose a cluster by `sandbox.pod.context`",
        )


def _cut(answer: aiohttp.ClientResponse) -> None:
    """End a stream that is left before its end: closing it would wait for the server's goodbye."""
    transport = answer.connection.transport if answer.connection is not None else None
    if transport is not None:
        transport.abort()


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return False
    return isinstance(error, _RETRIED) or (isinstance(error, ApiError) and error.code in TRANSIENT)


def _backoff(state: RetryCallState) -> float:
    """What the server asks for, or a random share of a doubling bound."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after_s if isinstance(error, ApiError) else 0.0
    bound = min(MAX_BACKOFF_S, 0.25 * 2.0**state.attempt_number)
    return asked + random.uniform(0, bound)  # noqa: S311 - spreads load, guards nothing


def _seconds(header: str) -> float:
    return float(header) if header.isdigit() else 0.0
