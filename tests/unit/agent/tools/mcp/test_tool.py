"""A tool of an MCP server keeps the contract of tools."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")

from mcp_types import CallToolResult, TextContent

from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.mcp import tool as module
from swe_rollout.agent.tools.mcp.options import PinnedTool
from swe_rollout.agent.tools.mcp.tool import McpTool
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.testing.extensions.tools import ToolContract

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "The file."}},
    "required": ["path"],
}


class Reader:
    """A server that answers with what a command of the sandbox prints."""

    acts_outside = False

    async def call(
        self, name: str, arguments: object, sandbox: Sandbox, *, timeout_s: float
    ) -> CallToolResult:
        found = await sandbox.exec([name, str(arguments)], timeout_s=timeout_s)
        text = found.stdout.decode(errors="replace")
        return CallToolResult(content=[TextContent(type="text", text=text)])


class TestMcpTool(ToolContract):
    arguments: ClassVar = {"path": "a.py"}

    @pytest.fixture
    def tool(self) -> Tool:
        pin = PinnedTool(name="read.file", description="Read a file.", input_schema=SCHEMA)
        return McpTool(pin, "x_", Reader())


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    pin = {"name": "a", "description": "A.", "inputSchema": SCHEMA}

    with pytest.raises(ExtensionError) as missing:
        module.mcp(command=["server"], tools=[pin])
    assert "swe-rollout[mcp]" in missing.value.fix
