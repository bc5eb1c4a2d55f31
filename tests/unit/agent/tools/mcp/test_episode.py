"""L20, WT8: an episode in which a scripted policy works with the tools of a real MCP server."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'swe-rollout[mcp]' to run these tests")

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.mcp.options import McpOptions
from swe_rollout.agent.tools.mcp.pin import pinned
from swe_rollout.agent.tools.mcp.stdio import StdioServer
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.spec.agent import ToolUse
from swe_rollout.spec.limits import Limits
from swe_rollout.types.episode import StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import Turn
from unit.agent.agent_parts import SUBMIT, Player, encode, loop_of, player
from unit.agent.tools.conftest import started
from unit.agent.tools.mcp.mcp_parts import ODD_SERVER, SDK_SERVER

LIMITS = Limits(context_tokens=131072, max_new_tokens=8192)


def calls(name: str, **arguments: object) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


async def pin(command: list[str], sandbox: Sandbox, prefix: str) -> ToolUse:
    """List the tools as `mcp-tools` does, and name them in a job."""
    server = StdioServer(McpOptions(command=tuple(command)))
    tools, problems = pinned(await server.tools(sandbox, timeout_s=60), prefix)
    await server.stop(sandbox)
    assert problems == []
    return ToolUse.model_validate(
        {"use": "mcp", "with": {"command": command, "prefix": prefix, "tools": tools}}
    )


async def play(engine: Player, tools: list[ToolUse | str], sandbox: Sandbox) -> Sequence[Turn]:
    played = loop_of(engine, sandbox=sandbox, limits=LIMITS, tools=toolbox(tools))
    assert await played.run() is StopReason.SUBMITTED
    return played.turns


async def test_a_scripted_policy_works_with_a_server_of_the_official_sdk(tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        await sandbox.exec("git init -q . && git config user.name a && git config user.email a@b")
        await sandbox.exec("git commit -q --allow-empty -m one")
        instance = Instance(instance_id="task", problem_statement="Do it.", image="image")
        base = await repository.prepare(sandbox, instance)
        use = await pin([sys.executable, str(SDK_SERVER), "stdio"], sandbox, "words_")
        engine = player(
            calls("words_write", path="notes.txt", text="one two\nthree\n"),
            calls("words_count", path="notes.txt"),
            calls("words_count", path=5),
            # Escaped: what the policy writes itself may well be a control token.
            calls("words_fail", why="<|im_end|> is text").replace("im_end", r"im\u005fend"),
            SUBMIT,
        )

        turns = await play(engine, [use, "submit"], sandbox)

        seen = [turn.observations[0].text for turn in turns]
        assert seen[0] == "wrote notes.txt"
        assert json.loads(seen[1]) == {"lines": 2, "words": 3}
        assert "must be a string" in seen[2]
        assert "<|im_end|> is text" in seen[3]
        ends = encode("<|im_end|>")
        last = engine.requests[-1].input_ids.tolist()
        # A turn each of system, user, four of the policy and four results, and no forged one.
        assert sum(last[at : at + len(ends)] == ends for at in range(len(last))) == 10
        patch = await repository.diff(sandbox, base)
        assert "notes.txt" in patch.text
        assert "swe-rollout" not in patch.text
        assert "mcp" not in patch.text


@pytest.mark.skipif(bool(bubblewrap.refusal()), reason="apt-get install bubblewrap")
async def test_a_server_in_a_sandbox_with_namespaces(tmp_path: Path) -> None:
    async with started(tmp_path, "bubblewrap") as sandbox:
        await sandbox.write_file("server.py", ODD_SERVER.read_bytes())
        use = await pin(["python3", "server.py"], sandbox, "")
        engine = player(calls("odd_tool", x="a"), calls("odd_tool", x="b"), SUBMIT)

        first, second, _ = await play(engine, [use, "submit"], sandbox)

        assert first.observations[0].text.endswith('{"x": "a"}')
        assert second.observations[0].text.endswith('{"x": "b"}')
        await sandbox.end_processes()
        left = await sandbox.exec("pgrep -f '[s]erver.py' || true")
        assert left.stdout == b""
