"""EngineConnection: HTTP to one server, whatever the message format.

It alone uses aiohttp's client among engines, including chat APIs. A server that can't be reached or
does not respond in time is an `EngineLostError` that says how the call was lost; any response,
errors included, is an `EngineResponse`. A response is untrusted: its bytes are counted, compressed
ones are refused, and redirects are not followed. Used by `sglang.engine`, `sglang.control`,
`pool.probe` and `chat.http`.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from swe_rollout.engine.errors import (
    MAX_BODY_BYTES,
    CallLoss,
    EngineLostError,
    OversizedResponseError,
)
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.spec.addresses import engine_address, refused_address
from swe_rollout.text.redaction import register

if TYPE_CHECKING:
    from aiohttp import AddrInfoType

CONNECT_S = 10.0
"""The time to open a connection, and for responses that cost a server nothing."""
_IDLE_S = 3.0
# Servers close idle connections after 5 s: keep them for less, so that no call meets a closing one.
OK = 200
UNKNOWN_PATH = 404
_SHOWN_CHARACTERS: Final = 60
_PORT: Final = re.compile(r":?\d{2,5}")
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_HEAD_BYTES: Final = 2**20
"""The most bytes that may arrive before the body is read: the head, and the body's first bytes."""


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """A server's response, whatever its status."""

    status: int
    body: bytes
    retry_after: str | None
    """The Retry-After header, unparsed."""
    content_type: str = ""
    """The type of the body, without parameters: all that may be shown of a stranger's response."""
    date: str | None = None
    """The Date header, unparsed: when the response was sent, by the server's clock."""


class _OversizedError(aiohttp.ClientError):
    """More bytes arrived than were allowed."""


class _CountedResponse(ResponseHandler):
    """Ends the connection when more bytes arrive than allowed for a response, head included.

    aiohttp's parser bounds single lines and headers, but not the number of interim responses.
    """

    allowed = 0

    def set_response_params(self, **parameters: object) -> None:
        """Begin another response."""
        self.allowed = _HEAD_BYTES
        super().set_response_params(**parameters)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.allowed -= len(data)
        if self.allowed >= 0:
            super().data_received(data)
            return
        error = _OversizedError()
        if self._payload is not None:
            self._payload.set_exception(error)
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()


class _Connector(aiohttp.TCPConnector):
    """Opens connections only to allowed addresses, whatever a name resolves to."""

    def __init__(self) -> None:
        super().__init__(limit=0, keepalive_timeout=_IDLE_S, socket_factory=_open_socket)
        # aiohttp has no other place to bound a response's head.
        counted = partial(_CountedResponse, loop=self._loop)
        self._factory = cast("partial[ResponseHandler]", counted)


def _open_socket(info: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, address = info
    if problem := refused_address(str(address[0]), int(address[1])):
        raise PermissionError(errno.EACCES, f"an engine can't be at {problem}")
    return socket.socket(family, kind, protocol)


class EngineConnection:
    """Calls to one server. Safe for concurrent calls; the first call opens it."""

    def __init__(
        self,
        url: str,
        *,
        api_key_env: str | None = None,
        key_header: str = "Authorization",
        headers: Mapping[str, str] = _NO_HEADERS,
        proxy: str | None = None,
    ) -> None:
        """`url` is the server's root; `api_key_env` names the variable that holds its key.

        The key is sent as `Bearer` in `Authorization`, but verbatim in any other `key_header`.
        `headers` are sent with every call; `proxy` is the address of an HTTP proxy.

        Raises PrerequisiteError when that variable is not set, UsageError for an address that can't
        be an engine's.
        """
        try:
            self.url = engine_address(url)
        except ValueError as error:
            is_plain = re.fullmatch(r"[\w:/.-]+", url) is not None  # otherwise it may hold a secret
            shown = url if is_plain else "this"
            raise UsageError(
                f"{shown} is no engine's address",
                why=f"expected {error}",
                fix=f"write {_address_meant(url) if is_plain else 'http://HOST:PORT'}",
            ) from None
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **headers,
            **_authorization(api_key_env, key_header),
        }
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        path: str,
        body: bytes = b"{}",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> EngineResponse:
        """Send a JSON body; raises EngineLostError when no response arrives in time.

        Without `timeout_s`, the caller must bound the time. `max_bytes` bounds the body of a 200;
        beyond it, as beyond `MAX_BODY_BYTES` for every other status, raises OversizedResponseError.
        """
        return await self._request(
            "POST", path, body=body, headers=headers, timeout_s=timeout_s, max_bytes=max_bytes
        )

    async def get(self, path: str, *, timeout_s: float = CONNECT_S) -> EngineResponse:
        """Read the path; raises EngineLostError when no response arrives in time."""
        return await self._request("GET", path, timeout_s=timeout_s)

    async def model_info(self, *, timeout_s: float = CONNECT_S) -> EngineResponse:
        """Read the server's description of its model, wherever its version provides that."""
        response = await self.get("/model_info", timeout_s=timeout_s)
        if response.status == UNKNOWN_PATH:
            response = await self.get("/get_model_info", timeout_s=timeout_s)
        return response

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float | None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> EngineResponse:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with self._open_session().request(
                method,
                self.url + path,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                bound = max_bytes if response.status == OK else MAX_BODY_BYTES
                content = await self._read(response, bound)
                return EngineResponse(
                    response.status,
                    content,
                    response.headers.get("Retry-After"),
                    response.content_type[:_SHOWN_CHARACTERS],
                    response.headers.get("Date"),
                )
        except _OversizedError:
            raise self._oversized(max_bytes) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise EngineLostError(
                f"no engine can be reached at {self.url}",
                why=_describe(error),
                fix="start the engine, or name the address where it listens",
                loss=CallLoss.UNREACHABLE,
            ) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineLostError(
                f"the engine at {self.url} was lost during a call",
                why=_describe(error),
                loss=CallLoss.DROPPED,
            ) from None  # the cause quotes the server

    async def _read(self, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        """Read the whole body; raises EngineLostError if it is too long or compressed."""
        self._check_head(response, max_bytes)
        protocol = response.connection and response.connection.protocol
        if isinstance(protocol, _CountedResponse):
            # Chunk headers and trailers count too.
            protocol.allowed = 2 * max_bytes + _HEAD_BYTES
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > max_bytes:
                response.close()
                raise self._oversized(max_bytes)
        return bytes(content)

    def _check_head(self, response: aiohttp.ClientResponse, max_bytes: int) -> None:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise OversizedResponseError(
                f"the engine at {self.url} compresses its responses",
                why="its size would be unknown until it is in memory, and none was asked to",
                fix="turn compression off in the proxy in front of it",
            )
        if (response.content_length or 0) > max_bytes:
            raise self._oversized(max_bytes)

    def _oversized(self, max_bytes: int) -> OversizedResponseError:
        return OversizedResponseError(
            f"the response of the engine at {self.url} is too long",
            why=f"what was asked for fits into {max_bytes} bytes",
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=_Connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


def _address_meant(url: str) -> str:
    if "://" in url:
        return "http://HOST:PORT"
    return f"http://127.0.0.1:{url.removeprefix(':')}" if _PORT.fullmatch(url) else f"http://{url}"


def _authorization(api_key_env: str | None, header: str) -> dict[str, str]:
    if api_key_env is None:
        return {}
    # A file's trailing line break often comes along.
    key = os.environ.get(api_key_env, "").strip()
    if not api_key_env.isidentifier():
        raise PrerequisiteError(  # it may be the key itself, so it is not shown
            "apiKeyEnv holds no name of an environment variable",
            why="it names the variable that holds the key, and is never the key itself",
            fix="export ENGINE_KEY=..., and write `apiKeyEnv: ENGINE_KEY`",
        )
    if not key:
        raise PrerequisiteError(
            f"the engine's key is missing: ${api_key_env} is not set",
            fix=f"export {api_key_env}=... here, or remove apiKeyEnv from spec.policy",
        )
    register(key)
    if not (key.isascii() and key.isprintable()):
        raise PrerequisiteError(
            f"${api_key_env} holds no key that can be sent",
            why="a key is printable ASCII on one line",
            fix=f"export {api_key_env} again, without quotes and line breaks",
        )
    return {header: f"Bearer {key}" if header == "Authorization" else key}


def _describe(error: Exception) -> str:
    if not isinstance(error, OSError):
        # Their texts quote what the server sent.
        return type(error).__name__
    # Some errors have no text at all.
    return f"{type(error).__name__}: {error}".rstrip(": ")
