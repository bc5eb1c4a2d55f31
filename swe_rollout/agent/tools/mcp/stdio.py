"""MCP over stdio, with a server that runs in the sandbox.

The first call of an episode starts the server, which handles one request at a time. It is not
trusted, since the policy can reach it: whatever it does wrong becomes a ToolError, which the policy
reads, and the next call restarts it. The size of its output for one request is bounded.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import structlog
from mcp_types import CallToolResult, ListToolsResult, Tool
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.mcp.options import McpOptions, ServerTimeoutError
from swe_rollout.agent.tools.mcp.relay import Relay, RelayError, RelayTimeoutError
from swe_rollout.agent.tools.mcp.results import observation
from swe_rollout.agent.tools.state import PerSandbox
from swe_rollout.errors import ExtensionFailedError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

log = structlog.get_logger()

MAX_REQUEST_BYTES: Final = 4 << 20
MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximum output of the server during one request."""
MAX_STRAY_LINES: Final = 100
"""Maximum number of lines that are not messages; some servers log to stdout."""
MAX_PAGES: Final = 32
START_S: Final = 60.0
"""How long a server may take to start, when it is tried before the first episode of an image."""
_SHORT_BYTES: Final = 1 << 16
_SHORT_CONTENT: Final = 100
_LEAST_S: Final = 0.1
_SHOWN_ERROR_CHARS: Final = 1000
_SHOWN_COMMAND_CHARS: Final = 200
_METHOD_NOT_FOUND: Final = -32601


class _ProtocolError(Exception):
    """The server violates the protocol, or writes too much."""


@dataclass(slots=True)
class _Connection:
    """The server of one sandbox."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    relay: Relay | None = None
    clean: bool = False
    """Whether the server is initialised and owes no response."""
    received: bytearray = field(default_factory=bytearray)
    """Output after the last line that was read."""
    unsent: bytes = b""
    """Replies and notifications to send with the next request."""


class StdioServer:
    """A server of a job: one process in each sandbox that calls it."""

    acts_outside = False

    def __init__(self, options: McpOptions) -> None:
        self._options = options
        self._connections = PerSandbox(_Connection)

    async def call(
        self, name: str, arguments: Mapping[str, object], sandbox: Sandbox, *, timeout_s: float
    ) -> Observation:
        """Call a tool. Raises ToolError, worded for the policy, if the server does not respond."""
        given = {"name": name, "arguments": dict(arguments)}
        found = await self._request("tools/call", given, sandbox, timeout_s)
        validate = CallToolResult.model_validate
        try:
            # 4 MiB can contain a hundred thousand pieces of content.
            result = await off_loop(validate, found) if _is_long(found) else validate(found)
        except ValidationError:
            raise ToolError("the tool server returned something that is no result") from None
        return observation(result)

    async def tools(self, sandbox: Sandbox, *, timeout_s: float) -> tuple[Tool, ...]:
        """List the server's tools. Raises ToolError if the server does not."""
        tools: list[Tool] = []
        parameters: dict[str, object] = {}
        for _ in range(MAX_PAGES):
            found = await self._request("tools/list", parameters, sandbox, timeout_s)
            try:
                page = ListToolsResult.model_validate(found)
            except ValidationError as error:
                why = error.errors(include_url=False)[0]
                raise ToolError(f"the server's list of tools is none: {why['msg']}") from None
            tools += page.tools
            if page.next_cursor is None:
                return tuple(tools)
            parameters = {"cursor": page.next_cursor}
        raise ToolError(f"the server's list of tools has over {MAX_PAGES} pages")

    async def try_start(self, sandbox: Sandbox) -> None:
        """Start the server, compare its tools with the job's, and end it."""
        options = self._options
        command = shlex.join(options.command)[:_SHOWN_COMMAND_CHARS]
        try:
            offered = {tool.name for tool in await self.tools(sandbox, timeout_s=START_S)}
        except ToolError as error:
            raise ExtensionFailedError(
                f"the tool server `{command}` can't be used in the sandbox",
                why=str(error),
                fix="use an image that has it and what it needs, or correct its command",
            ) from error
        finally:
            await self.stop(sandbox)
        if missing := [tool.name for tool in options.tools if tool.name not in offered]:
            raise ExtensionFailedError(
                f"the tool server `{command}` has no tool {missing[0]}",
                why=f"it has {', '.join(sorted(offered)) or 'none'}"[:_SHOWN_ERROR_CHARS],
                fix="`swe-rollout mcp-tools job.yaml` prints its tools for the job file",
            )

    async def stop(self, sandbox: Sandbox) -> None:
        """End the server of a sandbox, if one runs."""
        connection = self._connections.of(sandbox)
        async with connection.lock:
            await self._drop(connection, sandbox)

    async def _request(
        self, method: str, parameters: Mapping[str, object], sandbox: Sandbox, timeout_s: float
    ) -> object:
        connection = self._connections.of(sandbox)
        async with connection.lock:
            exchange = _Exchange(connection, sandbox, time.monotonic() + timeout_s)
            if not connection.clean:
                await self._drop(connection, sandbox)
            try:
                if connection.relay is None:
                    await self._start(connection, sandbox, exchange)
                # Whatever ends this before the response leaves a server that may still send it.
                connection.clean = False
                result = await exchange.request(method, parameters)
                connection.clean = True
            except RelayTimeoutError:
                await self._drop(connection, sandbox)
                self._warn("no answer in time")
                raise ServerTimeoutError(
                    f"the tool server did not answer within {timeout_s:g} s; the next call starts "
                    "it anew"
                ) from None
            except (RelayError, _ProtocolError) as error:
                said = await self._drop(connection, sandbox)
                self._warn(str(error))
                raise ToolError(f"the tool server failed: {error}{said}") from None
        if isinstance(result, _Refusal):
            raise ToolError(result.text)
        return result

    async def _start(self, connection: _Connection, sandbox: Sandbox, exchange: _Exchange) -> None:
        options = self._options
        connection.relay = await Relay.start(
            sandbox, options.command, env=options.env, timeout_s=exchange.remaining_s
        )
        connection.received.clear()
        connection.unsent = b""
        greeted = await exchange.request("initialize", _INITIALIZE)
        if isinstance(greeted, _Refusal):
            raise _ProtocolError(f"it refuses to start: {greeted.text}")
        exchange.notify("notifications/initialized")

    async def _drop(self, connection: _Connection, sandbox: Sandbox) -> str:
        """End the server; return the start of its stderr, for people."""
        relay, connection.relay, connection.clean = connection.relay, None, False
        if relay is None:
            return ""
        said = (await relay.stop(sandbox)).decode(errors="replace").strip()
        shown = said[:_SHOWN_ERROR_CHARS] + ("…" if len(said) > _SHOWN_ERROR_CHARS else "")
        return f"\nits stderr began with:\n{shown}" if shown else ""

    def _warn(self, why: str) -> None:
        log.warning("mcp_server_stopped", server=self._options.server, why=why)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The server responded with an error."""

    text: str


_IDS: Final = count(1)
_INITIALIZE: Final[Mapping[str, object]] = {
    "protocolVersion": LATEST_HANDSHAKE_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "swe-rollout", "version": "1"},
}


class _Exchange:
    """Requests to one server until a deadline."""

    def __init__(self, connection: _Connection, sandbox: Sandbox, deadline: float) -> None:
        self._connection = connection
        self._sandbox = sandbox
        self._deadline = deadline

    @property
    def remaining_s(self) -> float:
        return max(_LEAST_S, self._deadline - time.monotonic())

    def notify(self, method: str) -> None:
        """Queue a notification, which is sent with the next request."""
        self._connection.unsent += _line({"jsonrpc": "2.0", "method": method})

    async def request(self, method: str, parameters: Mapping[str, object]) -> object:
        """Send a request and return its result, or the _Refusal received instead."""
        number = next(_IDS)
        line = _line({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
        if len(line) > MAX_REQUEST_BYTES:
            return _Refusal(f"the arguments have over {MAX_REQUEST_BYTES >> 20} MiB")
        self._connection.unsent += line
        async for message in self._messages():
            match message:
                case {"id": other, "method": str(asked)}:
                    # The server sends a request of its own, for a model or one of our files, say.
                    reply = {"jsonrpc": "2.0", "id": other, **_reply(asked)}
                    self._connection.unsent += _line(reply)
                case {"id": other, "result": result} if other == number:
                    return result
                case {"id": other, "error": error} if other == number:
                    return _Refusal(_message_of(error))
        raise _ProtocolError("it ended its output")

    async def _messages(self) -> AsyncIterator[dict[str, object]]:
        """Yield messages of the server as they arrive. Raises RelayError if there are no more."""
        strays = 0
        async for line in self._lines():
            message = await _decoded(line)
            if message is not None:
                yield message
            elif line.strip():
                if line.startswith(b"@exit "):
                    code = line[6:].decode(errors="replace").strip()
                    raise RelayError(f"it ended with exit code {code[:8]}")
                strays += 1
                if strays > MAX_STRAY_LINES:
                    raise _ProtocolError("it writes lines that are no messages of MCP")

    async def _lines(self) -> AsyncIterator[bytes]:
        connection = self._connection
        relay, received = connection.relay, connection.received
        if relay is None:
            raise RelayError("it is not running")
        read, searched, first = len(received), 0, True
        while True:
            while (end := received.find(b"\n", searched)) >= 0:
                line = bytes(received[:end])
                del received[: end + 1]
                searched = 0
                yield line
            searched = len(received)
            data, connection.unsent = connection.unsent, b""
            chunk = await relay.exchange(
                self._sandbox, data, first=first, timeout_s=self.remaining_s
            )
            first = False
            read += len(chunk)
            if read > MAX_ANSWER_BYTES:
                raise _ProtocolError(f"it wrote over {MAX_ANSWER_BYTES >> 20} MiB")
            received += chunk


def _line(message: Mapping[str, object]) -> bytes:
    # ASCII: a lone surrogate stays an escape, and no character of the text ends the line.
    return json.dumps(message).encode() + b"\n"


def _reply(method: str) -> dict[str, object]:
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": _METHOD_NOT_FOUND, "message": "this client offers nothing"}}


def _message_of(error: object) -> str:
    match error:
        case {"message": str(text)}:
            return text
        case _:
            return "the tool server refused the call"


def _is_long(result: object) -> bool:
    match result:
        case {"content": list(content)}:
            return len(content) > _SHORT_CONTENT
        case _:
            return False


async def _decoded(line: bytes) -> dict[str, object] | None:
    """Return the message in a line, or None if it is not a JSON object."""
    return await off_loop(_decode, line) if len(line) > _SHORT_BYTES else _decode(line)


def _decode(line: bytes) -> dict[str, object] | None:
    with suppress(ValueError, RecursionError):
        found: object = json.loads(line)
        if isinstance(found, dict):
            return found
    return None
