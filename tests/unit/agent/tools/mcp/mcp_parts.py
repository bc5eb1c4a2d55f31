"""Servers for the tests of MCP tools."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.mcp.options import McpOptions
from swe_rollout.agent.tools.mcp.tool import read_options, server_tools
from waits import block_until

ODD_SERVER = Path(__file__).with_name("odd_server.py")
SDK_SERVER = Path(__file__).with_name("sdk_server.py")
ANY = {"type": "object", "additionalProperties": True}


def command(how: str) -> list[str]:
    return [sys.executable, str(ODD_SERVER), how]


def options(how: str) -> McpOptions:
    return McpOptions(command=tuple(command(how)))


def odd_tool(how: str) -> Tool:
    pinned = {"name": "odd.tool", "description": "Odd.", "inputSchema": ANY}
    (tool,) = server_tools(read_options({"command": command(how), "tools": [pinned]}))
    return tool


def _listens(port: int) -> bool:
    with socket.socket() as attempt:
        return not attempt.connect_ex(("127.0.0.1", port))


@contextmanager
def http_server() -> Iterator[str]:
    """Run the server made with the official SDK, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(SDK_SERVER), "http", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        block_until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()
