"""MCP over streamable HTTP, with a server beside the worker.

Each call has its own session: no episode sees another's, and a restarted server is found again. As
for engines, the resolved address is checked when a connection is opened. A server that can't be
reached, or refuses the worker, fails the episode (ToolServerError) and is not the policy's fault. A
response of a reachable server is an observation.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, Tool
from pydantic import ValidationError

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.mcp.options import McpOptions, ServerTimeoutError
from swe_rollout.agent.tools.mcp.results import observation
from swe_rollout.errors import ExtensionFailedError, PrerequisiteError, first_error
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.addresses import refused_address
from swe_rollout.text.redaction import register
from swe_rollout.types.turn import Observation

MAX_RESPONSE_BYTES: Final = 4 << 20
MAX_PAGES: Final = 32
_CONNECT_S: Final = 10.0
_REFUSALS: Final = (401, 403, 407)
_SERVER_ERRORS: Final = range(500, 600)


class ToolServerError(ExtensionFailedError):
    """A tool server beside the worker can't be reached, or refuses the worker."""


class HttpServer:
    """A server of a job. Safe for concurrent calls; holds no connection between them."""

    acts_outside = True
    try_start = None

    def __init__(self, options: McpOptions) -> None:
        """Raises PrerequisiteError if the environment variable of a header's value is not set."""
        # It logs what servers send, with tracebacks; our errors contain what matters.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        self._url = options.url or ""
        variables = dict(options.headers_env)
        self._headers = {name: _secret(variable) for name, variable in variables.items()}
        if options.api_key_env is not None:
            self._headers["Authorization"] = f"Bearer {_secret(options.api_key_env)}"

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        sandbox: Sandbox,  # noqa: ARG002 - the server is not in it
        *,
        timeout_s: float,
    ) -> Observation:
        """Call a tool. Raises ToolError for what the policy should read, else ToolServerError."""
        request = CallToolRequest(
            params=CallToolRequestParams(name=name, arguments=dict(arguments))
        )
        async with self._session(timeout_s) as client:
            # Not `call_tool`, which lists all tools and compiles the schemas of their results.
            return observation(await client.session.send_request(request, CallToolResult))

    async def tools(self, *, timeout_s: float) -> tuple[Tool, ...]:
        """List the server's tools."""
        tools: list[Tool] = []
        cursor: str | None = None
        async with self._session(timeout_s) as client:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                if (cursor := page.next_cursor) is None:
                    return tuple(tools)
        raise ToolError(f"the server's list of tools has over {MAX_PAGES} pages")

    @asynccontextmanager
    async def _session(self, timeout_s: float) -> AsyncIterator[Client]:
        guard, is_open = _Guard(), False
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        headers = {"Accept-Encoding": "identity", **self._headers}
        try:
            async with (
                asyncio.timeout(timeout_s) as clock,
                httpx2.AsyncClient(
                    transport=guard, headers=headers, timeout=timeout, trust_env=False
                ) as http,
                Client(streamable_http_client(self._url, http_client=http), cache=None) as client,
            ):
                is_open = True
                yield client
        except Exception as error:
            if clock.expired():
                raise ServerTimeoutError(
                    f"the tool server did not answer within {timeout_s:g} s"
                ) from None
            raise self._worded(error, guard, is_open=is_open) from error

    def _worded(self, error: Exception, guard: _Guard, *, is_open: bool) -> Exception:
        """Return the error that the caller should see."""
        first = first_error(error) if isinstance(error, ExceptionGroup) else error
        if guard.failure or not is_open:
            # Before a session is open, nothing depends on what the policy wrote.
            return ToolServerError(
                f"the MCP server at {self._url} can't be used",
                why=guard.failure or guard.problem or f"{type(first).__name__}: {str(first)[:300]}",
                fix="start it, or correct its address and its key in the job",
                retryable=True,
            )
        match first:
            case ToolError():
                return first
            case _ if guard.problem:
                return ToolError(f"the tool server failed: {guard.problem}")
            case MCPError():
                return ToolError(first.message)
            case ValidationError():
                return ToolError("the tool server returned something that is no result")
            case _:
                return ToolServerError(
                    f"the MCP server at {self._url} broke off a call",
                    why=f"{type(first).__name__}: {str(first)[:300]}",
                    fix="look at the server's own log",
                    retryable=True,
                )


class _Guard(httpx2.AsyncBaseTransport):
    """Opens connections only to allowed addresses, and counts the bytes of each response."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(verify=_ssl_context(), trust_env=False)
        self.failure = ""
        """Why the server can't be used; empty while it can."""
        self.problem = ""
        """What is wrong with one of its responses; empty if nothing is."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        try:
            default = 443 if request.url.scheme == "https" else 80
            address = await _resolved(host, request.url.port or default)
            checked = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # which have the name as Host
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            response = await self._inner.handle_async_request(checked)
        except (httpx2.TransportError, OSError) as error:
            # The deadline of the call is not the server's fault.
            self.failure = f"{type(error).__name__}: {error}".rstrip(": ")
            raise
        if response.status_code in _SERVER_ERRORS or response.status_code in _REFUSALS:
            self.failure = f"it answered {request.method} with status {response.status_code}"
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            self.problem = "it compresses its answers, though none was asked to"
            await response.aclose()
            raise httpx2.ReadError(self.problem)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Counted(response, self),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    """The body of a response, up to a maximum number of bytes."""

    def __init__(self, response: httpx2.Response, guard: _Guard) -> None:
        self._response = response
        self._guard = guard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for chunk in self._response.aiter_raw():
            count += len(chunk)
            if count > MAX_RESPONSE_BYTES:
                self._guard.problem = f"its answer has over {MAX_RESPONSE_BYTES >> 20} MiB"
                raise httpx2.ReadError(self._guard.problem)
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


async def _resolved(host: str, port: int) -> str:
    """Return an address of the host that a worker may call. Raises OSError if it has none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refusals = []
    for *_, address in found:
        ip = str(address[0])
        if not (problem := refused_address(ip, port)):
            return ip
        refusals.append(problem)
    raise PermissionError(f"no tool server can be at {refusals[0] if refusals else host}")


@cache
def _ssl_context() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def _secret(variable: str) -> str:
    # Values from files often end with a line break.
    value = os.environ.get(variable, "").strip()
    if not value:
        raise PrerequisiteError(
            f"the MCP server's header is missing: ${variable} is not set",
            fix=f"export {variable}=... here; on a cluster, by spec.workers.secrets",
        )
    register(value)
    if not (value.isascii() and value.isprintable()):
        raise PrerequisiteError(
            f"${variable} holds nothing that can be sent",
            why="a header is printable ASCII on one line",
            fix=f"export {variable} again, without quotes and line breaks",
        )
    return value
