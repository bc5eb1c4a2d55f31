"""Messages of MCP servers, which the policy may have written."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from typing import cast

from rollout_dev.fuzz.surface import Shape, Surface, promise, run_async, split_head, with_head
from swe_rollout.agent.tools.base import ToolContext, ToolError
from swe_rollout.agent.tools.mcp import results, stdio
from swe_rollout.agent.tools.mcp.options import McpOptions
from swe_rollout.agent.tools.mcp.pin import pinned
from swe_rollout.agent.tools.mcp.relay import Relay, RelayError
from swe_rollout.testing.extensions.tools import MemorySandbox

_OUTPUT_BYTES = 2000


def _samples() -> Sequence[bytes]:
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/b"}, "c": {"type": ["string", "null"]}},
        "$defs": {"b": {"type": "array", "items": {"$ref": "#/$defs/b"}}},
        "required": ["a"],
    }
    tools = {"tools": [{"name": "x.y", "description": "d", "inputSchema": schema}]}
    content = [
        {"type": "text", "text": "hi"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "t"}},
    ]
    called = {"content": content, "isError": False, "structuredContent": {"a": 1}}
    lines: list[object] = [
        {"jsonrpc": "2.0", "id": "@1", "result": greeting},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {}},
        {"jsonrpc": "2.0", "id": 7, "method": "ping"},
        {"jsonrpc": "2.0", "id": "@2"},
    ]
    last: list[tuple[str, dict[str, object]]] = [
        ("call", {"result": called}),
        ("call", {"error": {"code": -1, "message": "no"}}),
        ("list", {"result": tools}),
        ("list", {"result": {**tools, "nextCursor": "2"}}),
    ]
    return [
        with_head(head, json.dumps([*lines[:3], {"jsonrpc": "2.0", "id": "@2", **each}]).encode())
        for head, each in last
    ]


class _Server:
    """A server that writes lines; `@1` in them is the number of the first request."""

    def __init__(self, lines: list[object]) -> None:
        self._lines = lines
        self._ids: list[int] = []
        self._left = b""

    async def exchange(
        self, sandbox: object, data: bytes, *, first: bool, timeout_s: float
    ) -> bytes:
        del sandbox, first, timeout_s
        for line in data.splitlines():
            message = json.loads(line)
            if "params" in message and isinstance(message.get("id"), int):
                self._ids.append(message["id"])
        await asyncio.sleep(0)
        if not self._lines:
            raise RelayError("it has ended")
        next_line = self._lines.pop(0)
        text = next_line if isinstance(next_line, str) else json.dumps(next_line)
        for number, known in enumerate(self._ids, start=1):
            text = text.replace(f'"@{number}"', str(known))
        return re.sub(r"\n+", " ", text).encode(errors="surrogatepass") + b"\n"

    async def stop(self, sandbox: object) -> bytes:
        del sandbox
        return b"stderr"


async def _exchanged(head: str, lines: list[object]) -> None:
    server = stdio.StdioServer(McpOptions(command=("server",)))
    sandbox = MemorySandbox({})
    connection = server._connections.of(sandbox)  # noqa: SLF001 - no program is started
    relay = _Server(lines)
    connection.relay = cast("Relay", relay)
    connection.clean = True
    context = ToolContext(timeout_s=30.0, output_bytes=_OUTPUT_BYTES)
    exchange = stdio._Exchange(connection, sandbox, time.monotonic() + 30)  # noqa: SLF001
    await exchange.request("initialize", {})
    if head == "list":
        # Pages without end would be read over and over: the lines are used up first.
        tools = await server.tools(sandbox, timeout_s=30.0)
        pins, _ = pinned(tools, "p_")
        promise(len(pins) <= len(tools), "more tools than the server has")
        return
    found = await server.call("x", {"a": 1}, sandbox, timeout_s=30.0)
    seen = results.observation(found, context)
    promise(len(seen.text.encode()) <= _OUTPUT_BYTES + 500, "more output than the policy may read")
    promise("\0" not in seen.text, "a NUL in what the policy reads")


def _read(data: bytes) -> None:
    head, body = split_head(data)
    value: object
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = body.decode(errors="replace").split("\n")
    if isinstance(value, list):
        run_async(_exchanged(head, value[:200]))


MESSAGES = Surface(
    "mcp-messages",
    "messages of an MCP server: results, lists of tools, requests of its own",
    _samples,
    _read,
    (ToolError, RelayError, stdio._ProtocolError),  # noqa: SLF001 - below the server
    Shape.JSON,
    (
        "@1",
        "@2",
        "result",
        "error",
        "method",
        "nextCursor",
        "$ref",
        "#",
        "#/$defs/b",
        "@exit 1",
        "text",
    ),
    has_head=True,
)
