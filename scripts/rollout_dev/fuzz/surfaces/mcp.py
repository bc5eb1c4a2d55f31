"""Messages of MCP servers, which the policy may have written."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import cast

from rollout_dev.fuzz.surface import promise, run_async, split_head, surface
from swe_rollout.agent.tools.base import ToolContext, ToolError
from swe_rollout.agent.tools.mcp import stdio
from swe_rollout.agent.tools.mcp.options import McpOptions, PinnedTool
from swe_rollout.agent.tools.mcp.pin import pinned
from swe_rollout.agent.tools.mcp.relay import Relay, RelayError
from swe_rollout.agent.tools.mcp.tool import mcp_tool
from swe_rollout.testing.extensions.tools import MemorySandbox

_OUTPUT_BYTES = 2000


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
        # Endless pages would be read forever, but the lines are used up first.
        tools = await server.tools(sandbox, timeout_s=30.0)
        pins, _ = pinned(tools, "p_")
        promise(len(pins) <= len(tools), "more tools than the server has")
        return
    pin = PinnedTool(name="x", description="X.")
    seen = await mcp_tool(pin, "", server).run({"a": 1}, sandbox, context)
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


MESSAGES = surface(
    "mcp-messages",
    _read,
    ToolError,
    RelayError,
    stdio._ProtocolError,  # noqa: SLF001 - below the server
)
