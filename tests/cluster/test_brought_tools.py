"""A bundle of programs and an MCP server with a command, in the pods of a job."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.needs import TIER
from e2e.command import job_writer, printed_json, swe_rollout
from e2e.records import check, committed, read
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tiny import tokenizer_path

pytestmark = TIER
SERVER = """
import json, os, socket, sys
tools = [{"name": "count", "description": "Count calls.", "inputSchema": {"type": "object"}}]
calls = 0
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            server = {"name": "counter", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": server}
        case "tools/list":
            result = {"tools": tools}
        case "tools/call":
            calls += 1
            text = f"call {calls} on {socket.gethostname()} in {os.getcwd()}"
            result = {"content": [{"type": "text", "text": text}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
MANIFEST = "tools: [{name: note, description: Write a note.}]"
NOTE = """#!/bin/sh
read -r arguments
echo "made by a bundle" >note.txt
echo "a note on $(hostname) in $(pwd)"
"""


def test_a_bundle_and_a_server_run_in_the_pods_of_their_episodes(tmp_path: Path) -> None:
    folder = tmp_path / "my-tools"
    folder.mkdir()
    (folder / "bundle.yaml").write_text(MANIFEST)
    (folder / "note").write_text(NOTE)
    server = {
        "command": ["python3", "-c", SERVER],
        "tools": [{"name": "count", "description": "Count calls."}],
    }
    turns: list[object] = [{"call": {name: {}}} for name in ("count", "note", "count", "submit")]
    job = job_writer(tmp_path, store=f"file://{tmp_path}/store")(
        scenarios=["gold", "gold"],
        policy={"scripted": {"turns": turns}},
        agent={
            "tools": [
                {"use": "mcp", "with": server},
                {"use": "bundle", "with": {"path": "my-tools"}},
                "submit",
            ]
        },
        sandbox={"pod": {}},
    )

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    assert (state["committed"], state["masked"], state["failures"]) == (2, 0, {})
    renderer = Renderer.load(str(tokenizer_path()))
    pods = set()
    for record in map(read, committed(job.folder)):
        check(record)
        assert record["stop_reason"] == "submitted"
        assert "+made by a bundle" in record["patch"]
        said = re.findall(
            r"(call \d|a note) on (job-\S+) in /testbed", renderer.decode(record["token_ids"])
        )
        assert [what for what, _ in said] == ["call 1", "a note", "call 2"]
        pods |= {pod for _, pod in said}
    assert len(pods) == 2
