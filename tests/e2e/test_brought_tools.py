"""Tools that are no Python, in a job that is run as its user would."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.command import printed_json, swe_rollout
from e2e.records import check, committed, read
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tiny import tokenizer_path

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        tools = [{"name": "time.now", "description": "Tell the time.", "inputSchema": {}}]
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "tools": tools}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
MANIFEST = "tools: [{name: look_around, description: Look around.}]"


@pytest.mark.slow
def test_a_bundle_and_a_server_s_pinned_tools_reach_the_prompt(tmp_path: Path) -> None:
    folder = tmp_path / "my-tools"
    folder.mkdir()
    (folder / "bundle.yaml").write_text(MANIFEST)
    (folder / "look_around").write_text("#!/bin/sh\nls\n")
    server = {"command": ["python3", "-c", SERVER], "prefix": "clock_"}
    tools: list[object] = ["bash", "str_replace_editor", "submit"]
    tools += [{"use": "mcp", "with": server}, {"use": "bundle", "with": {"path": "my-tools"}}]
    job = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "tools"},
        "spec": {
            "dataset": {"releasePairs": {"names": ["sqlparse"]}},
            "policy": {"scripted": {"scenarios": ["gold"]}},
            "agent": {"tools": tools},
            "limits": {"contextTokens": 131072},
            "store": {"uri": f"file://{tmp_path}/store"},
        },
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))

    refused = swe_rollout("run", str(path), check=False)
    assert (refused.returncode, "does not list the tools" in refused.stderr) == (2, True)
    listed = yaml.safe_load(swe_rollout("mcp-tools", str(path)).stdout)
    job["spec"]["agent"] = listed  # type: ignore[index]
    path.write_text(yaml.safe_dump(job))
    state = printed_json(swe_rollout("run", str(path), "-o", "json"))

    assert (state["committed"], state["failures"]) == (1, {})
    (record,) = [read(each) for each in committed(tmp_path / "store" / "tools")]
    check(record)
    assert record["reward"] == 1.0
    assert record["software"]["my-tools.bundle"].startswith("sha256:")
    prompt = Renderer.load(str(tokenizer_path())).decode(
        record["token_ids"][: record["turns"][0]["request"]["length"]]
    )
    assert '"look_around"' in prompt
    assert '"clock_time_now"' in prompt
    assert "Tell the time." in prompt
