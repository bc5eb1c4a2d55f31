"""What the pages about bundles and MCP servers show runs as they show it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("mcp", reason="pip install 'swe-rollout[mcp]' to run these tests")

from checkout import ROOT
from doc_steps import blocks
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.bundle.archive import MAX_BYTES, pack, register
from swe_rollout.agent.tools.bundle.tool import bundle_tools
from swe_rollout.agent.tools.mcp import relay
from swe_rollout.agent.tools.mcp.options import McpOptions
from swe_rollout.agent.tools.mcp.pin import pinned
from swe_rollout.agent.tools.mcp.stdio import StdioServer
from swe_rollout.spec.agent import ToolUse
from unit.agent.tools.bundle.bundle_parts import bundle_of
from unit.agent.tools.conftest import started

PAGES = ROOT / "docs" / "how-to" / "extend"
CONTEXT = ToolContext(30.0, 16384)


def uses(page: str, name: str) -> list[dict[str, Any]]:
    """The tools of this name in the page's job."""
    job = yaml.safe_load(blocks(PAGES / f"{page}.md", "yaml")[-1])
    return [use for use in job["agent"]["tools"] if isinstance(use, dict) and use["use"] == name]


async def test_the_bundle_of_the_page_runs(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "bundle.yaml").write_text(blocks(PAGES / "tool-bundles.md", "yaml")[0])
    (folder / "outline.sh").write_text(blocks(PAGES / "tool-bundles.md", "sh")[0])
    (folder / "hand_in").write_text("#!/bin/sh\n")
    outline, hand_in = bundle_tools(bundle_of(folder))
    async with started(tmp_path) as sandbox:
        await sandbox.write_file("a.py", b"def one(): ...\n\nclass _Two: ...\n")

        public = await outline.run({"path": "a.py"}, sandbox, CONTEXT)
        every = await outline.run({"path": "a.py", "private": True}, sandbox, CONTEXT)
        absent = await outline.run({"path": "$(id)"}, sandbox, CONTEXT)

    assert public.text == "exit code: 0\nstdout:\n1:def one(): ..."
    assert every.text.endswith("3:class _Two: ...")
    assert (absent.exit_code, absent.text.endswith("there is no file $(id)")) == (1, True)
    assert hand_in.spec.ends_episode


def test_the_job_of_the_page_about_bundles_names_one(tmp_path: Path) -> None:
    (use,) = uses("tool-bundles", "bundle")
    folder = tmp_path / use["with"]["path"]
    folder.mkdir()
    (folder / "bundle.yaml").write_text("tools: [{name: a, description: A.}]")
    (folder / "a").write_text("")
    data = pack(folder)

    register(data)

    assert MAX_BYTES == 8 << 20, "the page names it"


async def test_the_server_of_the_page_offers_what_its_job_pins(tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(blocks(PAGES / "mcp.md", "python")[0])
    local, remote = (each["with"] for each in uses("mcp", "mcp"))
    server = StdioServer(McpOptions(command=(sys.executable, str(file))))
    async with started(tmp_path / "sandbox") as sandbox:
        await sandbox.write_file("a.txt", b"three short words")

        found, problems = pinned(await server.tools(sandbox, timeout_s=60), "")
        counted = await server.call("count_words", {"path": "a.txt"}, sandbox, timeout_s=60)

    assert problems == []
    (listed,), (shown,) = found, local["tools"]
    assert (listed["name"], listed["description"]) == (shown["name"], shown["description"])
    assert counted.text == "3"
    assert remote["prefix"] == "search_"


def test_the_job_of_the_page_about_servers_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "a-token")

    box = toolbox([ToolUse.model_validate(use) for use in uses("mcp", "mcp")])

    assert [spec.name for spec in box.specs] == ["count_words", "search_query"]


def test_the_page_names_the_programs_that_a_sandbox_needs() -> None:
    page = (PAGES / "mcp.md").read_text("utf-8")

    for program in ("mkfifo", "mktemp", "dd"):
        assert program in relay._START + relay._EXCHANGE
        assert f"`{program}`" in page
