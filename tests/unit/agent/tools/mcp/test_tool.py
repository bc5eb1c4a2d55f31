"""A tool of an MCP server keeps the contract of tools, and shows what a call returns."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")

from mcp_types import CallToolResult

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Tool, ToolContext
from swe_rollout.agent.tools.mcp.options import PinnedTool
from swe_rollout.agent.tools.mcp.results import observation
from swe_rollout.agent.tools.mcp.tool import mcp_tool
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.testing.extensions.tools import MemorySandbox, ToolContract
from swe_rollout.types.turn import Observation

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "The file."}},
    "required": ["path"],
}
PIN = PinnedTool(name="read.file", description="Read a file.", input_schema=SCHEMA)
TEXT = {"type": "text", "text": "words"}


@dataclass
class Server:
    """A server that answers with a result, or with what a command of the sandbox prints."""

    result: Mapping[str, Any] | None = None
    acts_outside: bool = False
    try_start: None = None

    async def call(
        self, name: str, arguments: object, sandbox: Sandbox, *, timeout_s: float
    ) -> Observation:
        if self.result is not None:
            return observation(CallToolResult.model_validate(self.result))
        found = await sandbox.exec([name, str(arguments)], timeout_s=timeout_s)
        return Observation(found.stdout.decode(errors="replace"))


class TestMcpTool(ToolContract):
    arguments: ClassVar = {"path": "a.py"}

    @pytest.fixture
    def tool(self) -> Tool:
        return mcp_tool(PIN, "x_", Server())


async def seen(*content: Mapping[str, object], **more: object) -> Observation:
    tool = mcp_tool(PIN, "", Server({"content": content, **more}))
    return await tool.run({"path": "a"}, MemorySandbox({}), ToolContext(1.0, 1024))


@pytest.mark.parametrize(
    ("content", "more", "text"),
    [
        ([TEXT, TEXT], {}, "words\nwords"),
        (
            [{"type": "image", "data": "A" * 400, "mimeType": "image/png"}],
            {},
            "[image: image/png, 300 bytes, not shown]",
        ),
        (
            [TEXT, {"type": "audio", "data": "", "mimeType": "audio/wav"}],
            {},
            "words\n[audio: audio/wav, 0 bytes, not shown]",
        ),
        (
            [{"type": "resource_link", "name": "x", "uri": "file:///x"}],
            {},
            "[resource: file:///x]",
        ),
        (
            [{"type": "resource", "resource": {"uri": "file:///y", "text": "body"}}],
            {},
            "[resource: file:///y]\nbody",
        ),
        (
            [{"type": "resource", "resource": {"uri": "file:///z", "blob": "AAAA"}}],
            {},
            "[resource: file:///z, 3 bytes, not shown]",
        ),
        ([], {"structuredContent": {"é": [1]}}, '{"é": [1]}'),
        ([TEXT], {"structuredContent": {"a": 1}}, "words"),
        ([], {}, "(no output)"),
        ([TEXT], {"isError": True}, "error: words"),
        ([{"type": "text", "text": "a\0"}], {}, r"a\x00"),
    ],
)
async def test_texts_are_shown_and_other_content_is_described(
    content: list[Mapping[str, object]], more: dict[str, object], text: str
) -> None:
    assert (await seen(*content, **more)).text == text


async def test_many_pieces_are_not_all_looked_at() -> None:
    found = await seen(*[TEXT] * 3000)

    assert "2000 more pieces of content" in found.text
    assert found.truncated
    assert len(found.text.encode()) <= 1024


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("swe_rollout.agent.tools.mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("mcp", "mcp_types"):
        monkeypatch.setitem(sys.modules, name, None)
    pin = {"name": "a", "description": "A.", "inputSchema": SCHEMA}

    with pytest.raises(ExtensionError, match="need the package mcp") as missing:
        toolbox([ToolUse(use="mcp", with_={"command": ["server"], "tools": [pin]})])
    assert "swe-rollout[mcp]" in missing.value.fix
