"""HTTP to the API server: one connection pool, credentials on each request, retries, typed errors.

Requests are in `client`, watches in `watch`, exec streams in `exec`. A request that fails because
of load or the network is repeated for up to `retry_timeout_s`, so every request must be repeatable:
creates have fixed names, deletes name a uid.

An API server that restarts listens before it has read its roles and CRDs, and refuses for a moment
what it allowed before. For `SETTLING_S` after a connection has failed, such refusals are retried as
well.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from ssl import SSLCertVerificationError, SSLContext
from types import SimpleNamespace
from typing import ParamSpec, TypedDict, TypeVar

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay
from yarl import URL

from swe_rollout.cluster.api_error import ApiError, BusyServerError, api_error
from swe_rollout.cluster.config import Access
from swe_rollout.errors import ClusterError, UnreachableError
from swe_rollout.types.retrying import retried

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_S = 10.0
RESPONSE_S = 40.0
"""Longer than an admission webhook may take."""
WATCH_SILENCE_S = 75.0
"""Bookmarks arrive every minute: longer silence means a dead socket."""
HANDSHAKE_S = 20.0
REQUESTS_AT_ONCE = 32
HANDSHAKES_AT_ONCE = 64
"""Exec bypasses the API server's flow control: nothing else protects it and the kubelets."""
MAX_BACKOFF_S = 15.0
SETTLING_S = 30.0
"""An API server needs seconds to start; most of its clients reconnect in that time."""
MAX_RETRY_AFTER_S = 60
"""If a server, or its proxy, asks for a longer pause, the request is repeated after this one."""

SPREAD = random.SystemRandom()
"""Randomises pauses, so that clients don't all come back at once."""
JSON = "application/json"
_MOST_DIGITS = 10
_OUT_OF_DATE = frozenset({9, 10})
"""OpenSSL's codes for certificates that are not valid yet, or no longer."""
_NETWORK_ERRORS = (aiohttp.ClientError, OSError)
"""Also of what speaks no HTTP, and of a token that can't be read now."""


class _ConnectionOptions(TypedDict):
    """The options of each request that depend on the cluster's configuration."""

    headers: dict[str, str]
    ssl: SSLContext | bool
    server_hostname: str | None
    proxy: str | None


class Transport:
    """Requests, event streams and WebSockets to one API server."""

    def __init__(
        self, access: Access, *, retry_timeout_s: float = 60.0, settling_s: float = 0.0
    ) -> None:
        """Retry a request for `retry_timeout_s` before its failure is raised.

        For `settling_s` from now, the server is treated as one that has just started.
        """
        self.access = access
        self._settles_until = time.monotonic() + settling_s
        self._retry_timeout_s = retry_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._date = ""
        self._closed = False
        self._requests = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)

    async def request(
        self, method: str, path: str, *, doing: str, body: bytes = b"", content_type: str = JSON
    ) -> bytes:
        """Return the response's body; raises ApiError, or UnreachableError without a response."""
        call = partial(self._request, method, path, doing, body, content_type)
        return await self._with_retries(self._retry_timeout_s, self._authorized, call)

    @asynccontextmanager
    async def lines(self, path: str, *, doing: str) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a streamed response; silence and a lost connection raise UnreachableError."""
        opening = AsyncRetrying(
            retry=retry_if_exception(self._is_premature), wait=_backoff_s, reraise=True
        )
        try:
            response: aiohttp.ClientResponse = await opening(self._stream, path, doing)
            try:
                yield response.content
            finally:
                _abort(response)
                response.close()
        except _NETWORK_ERRORS as error:
            self._has_broken()
            raise self._unreachable(error) from error

    async def websocket(
        self, path: str, *, doing: str, protocols: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket without a limit on message size.

        Silence is a ClusterError: the node behind the server may be the one not responding.
        """
        timeout_s = min(self._retry_timeout_s, HANDSHAKE_S)
        try:
            return await self._with_retries(timeout_s, self._handshake, path, doing, protocols)
        except UnreachableError as error:
            raise ClusterError(f"got no response to {doing}", why=error.why) from error
        except ApiError as error:
            if not self._is_premature(error):
                raise
            raise ClusterError(f"got no answer to {doing} to rely on", why=error.why) from error

    def now(self) -> datetime:
        """Return when the last response was sent, by the server's clock: ours may be wrong."""
        try:
            found = parsedate_to_datetime(self._date[:64])
        except ValueError:
            return datetime.now(UTC)  # A proxy may have removed the header.
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    async def aclose(self) -> None:
        """Close every connection, for good."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _with_retries(
        self, timeout_s: float, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Repeat the call until it succeeds, fails permanently, or `timeout_s` is over."""
        retrying = _retrying(timeout_s, self._may_pass)
        try:
            return await retrying(call, *args, **kwargs)
        except _NETWORK_ERRORS as error:
            raise self._unreachable(error) from error

    async def _authorized(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a request, and again if the credentials that were refused can be renewed."""
        sent = await self.access.credentials.headers()
        try:
            return await self._in_turn(call)
        except ApiError as error:
            if not error.unauthorized or not await self.access.credentials.renewed(sent):
                raise
        return await self._in_turn(call)

    async def _in_turn(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make one of a bounded number of requests.

        One that the server is too busy for keeps its place while it waits, so that the server gets
        fewer of them. Others give it up: what fails for one namespace must not hold up the rest.
        """
        async with self._requests:
            return await retried(call, lambda: _retrying(self._retry_timeout_s, _is_busy))

    async def _request(
        self, method: str, path: str, doing: str, body: bytes, content_type: str
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=RESPONSE_S)
        options = await self._connection_options()
        options["headers"] = {**options["headers"], "Accept": JSON, "Content-Type": content_type}
        async with self._open().request(
            method, self._url(path), data=body or None, timeout=timeout, **options
        ) as response:
            data = await response.read()
        self._date = response.headers.get("Date", "")
        if response.ok:
            if response.content_type == JSON:
                return data
            raise aiohttp.ClientPayloadError(data[:200].decode(errors="replace"))
        retry_after = response.headers.get("Retry-After", "")
        raise api_error(doing, response.status, data, retry_after_s=_seconds(retry_after))

    async def _stream(self, path: str, doing: str) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=WATCH_SILENCE_S)
        options = await self._connection_options()
        response = await self._open().get(self._url(path), timeout=timeout, **options)
        if response.status == HTTPStatus.OK:
            return response
        async with response:
            raise api_error(doing, response.status, await response.read())

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
                    **await self._connection_options(),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise await self._refused_handshake(path, doing, error) from error

    async def _refused_handshake(
        self, path: str, doing: str, error: aiohttp.WSServerHandshakeError
    ) -> ApiError:
        """Build the error of a refused handshake, whose reason WebSocket clients drop.

        A plain request of the path is refused for the same reason, and starts nothing.
        """
        if error.status == HTTPStatus.FORBIDDEN:
            try:
                with suppress(*_NETWORK_ERRORS):
                    await self._request("GET", path, doing, b"", JSON)
            except ApiError as refused:
                if refused.forbidden:
                    return refused
        return api_error(doing, error.status, error.message.encode())

    def _may_pass(self, error: BaseException) -> bool:
        """Whether the same request may succeed a little later."""
        if isinstance(error, _NETWORK_ERRORS):
            self._has_broken()
        return _is_transient(error) or self._is_premature(error)

    def _has_broken(self) -> None:
        """Record a failed connection: the server may have been restarted."""
        self._settles_until = max(self._settles_until, time.monotonic() + SETTLING_S)

    def _is_premature(self, error: BaseException) -> bool:
        """Whether the refusal may come from a server that just started and is not ready."""
        is_settling = time.monotonic() < self._settles_until
        if not (is_settling and isinstance(error, ApiError)):
            return False
        return error.may_be_premature or error.is_unexplained

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ClusterError(
                "the client of the cluster is closed",
                why="a sandbox or a request outlived the provider that opened it",
                fix="keep the sandbox provider open for as long as its sandboxes are used",
                retryable=False,
            )
        if self._session is None:
            # Each watch and exec stream holds a connection: the pool itself must not be bounded.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), trace_configs=[self._tracing()]
            )
        return self._session

    def _tracing(self) -> aiohttp.TraceConfig:
        """Detect connections that fail silently: aiohttp itself repeats a request once."""

        async def connected(
            _: aiohttp.ClientSession, seen: SimpleNamespace, *_more: object
        ) -> None:
            if getattr(seen, "is_connected", False):
                self._has_broken()
            seen.is_connected = True

        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(connected)
        tracing.on_connection_reuseconn.append(connected)
        return tracing

    def _url(self, path: str) -> URL:
        return URL(self.access.server + path, encoded=True)

    async def _connection_options(self) -> _ConnectionOptions:
        return _ConnectionOptions(
            headers=await self.access.credentials.headers(),
            ssl=self.access.tls or True,
            server_hostname=self.access.tls_server_name,
            proxy=self.access.proxy,
        )

    def _unreachable(self, error: Exception) -> UnreachableError:
        fix = "check it with `kubectl version`; choose a cluster by `sandbox.pod.context`"
        if _is_of_the_clock(error):
            fix = "look at this machine's clock (`date -u`); if it is right, renew the certificate"
        return UnreachableError(
            f"the Kubernetes API server {self.access.server} does not respond",
            why=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
            fix=fix,
        )


def _abort(response: aiohttp.ClientResponse) -> None:
    """Abort an unfinished stream: closing it would wait for the server's side."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is not None:
        transport.abort()


def _retrying(timeout_s: float, repeats: Callable[[BaseException], bool]) -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception(repeats),
        stop=stop_after_delay(timeout_s),
        wait=_backoff_s,
        reraise=True,
    )


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, BusyServerError)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _is_of_the_clock(error)
    return isinstance(error, _NETWORK_ERRORS) or (isinstance(error, ApiError) and error.retryable)


def _is_of_the_clock(error: BaseException) -> bool:
    """Whether a certificate is not valid at this time; the clock may yet be corrected."""
    if not isinstance(error, aiohttp.ClientConnectorCertificateError):
        return False
    found = error.certificate_error
    return isinstance(found, SSLCertVerificationError) and found.verify_code in _OUT_OF_DATE


def _backoff_s(state: RetryCallState) -> float:
    """Return the server's Retry-After plus a random share of a doubling bound."""
    error = state.outcome.exception() if state.outcome else None
    retry_after_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
    bound = min(MAX_BACKOFF_S, 0.25 * 2.0**state.attempt_number)
    return retry_after_s + SPREAD.uniform(0, bound)


def _seconds(header: str) -> float:
    is_number = header.isascii() and header.isdigit() and len(header) < _MOST_DIGITS
    return float(min(int(header), MAX_RETRY_AFTER_S)) if is_number else 0.0
