"""MCP servers in a sandbox: those that work, and every way in which one may not."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")

from swe_rollout.agent.tools.base import ToolContext, ToolError
from swe_rollout.agent.tools.mcp.stdio import StdioServer
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation
from unit.agent.tools.conftest import EACH
from unit.agent.tools.mcp.mcp_parts import odd_tool, options

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTEXT = ToolContext(30.0, 16384)


async def call(
    sandbox: Sandbox, how: str, *, timeout_s: float = 30.0, output_bytes: int = 16384
) -> Observation:
    return await odd_tool(how).run({}, sandbox, ToolContext(timeout_s, output_bytes))


@EACH
async def test_one_server_answers_all_calls_of_an_episode(sandbox: Sandbox) -> None:
    tool = odd_tool("well")

    first = await tool.run({"x": 1}, sandbox, CONTEXT)
    second = await tool.run({"x": "é\n\ud800 漢"}, sandbox, CONTEXT)

    pid, _, arguments = first.text.removeprefix("pid ").partition(" ")
    assert arguments == '{"x": 1}'
    assert second.text.startswith(f"pid {pid} ")
    assert not first.truncated


async def test_calls_at_the_same_time_each_get_their_own_answer(sandbox: Sandbox) -> None:
    tool = odd_tool("well")

    seen = await asyncio.gather(*(tool.run({"x": n}, sandbox, CONTEXT) for n in range(20)))

    assert [each.text.rpartition('{"x": ')[2] for each in seen] == [f"{n}}}" for n in range(20)]


@EACH
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("some_garbage", "after garbage"),
        ("stderr_flood", "after the flood"),
        ("other_id", "for you"),
        ("error", "error: not today"),
        ("odd_error", "error: the tool server refused the call"),
        ("no_result", "error: the tool server returned something that is no result"),
    ],
)
async def test_what_a_server_says_is_told_from_noise(
    sandbox: Sandbox, how: str, expected: str
) -> None:
    assert (await call(sandbox, how)).text == expected


@EACH
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("garbage", "lines that are no messages"),
        ("endless_line", "over 4 MiB"),
        ("flood", "over 4 MiB"),
        ("big", "over 4 MiB"),
        ("dies", "it ended with exit code 7\nits stderr began with:\nI am tired"),
        ("refuses", "it refuses to start: too old"),
    ],
)
async def test_a_server_that_fails_is_an_observation_and_is_stopped(
    sandbox: Sandbox, how: str, why: str
) -> None:
    seen = await call(sandbox, how)

    assert seen.text.startswith("error: the tool server failed: ")
    assert why in seen.text
    assert not seen.timed_out
    assert not await left(sandbox, how)


async def test_what_a_server_wrote_last_is_read_however_late_it_arrives(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    late = tmp_path / "dd"
    late.write_text(f'#!/bin/sh\n[ "$1" = bs=512 ] && sleep 0.4\nexec {which("dd")} "$@"\n')
    late.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    server = StdioServer(options("dies").model_copy(update={"env": env}))

    with pytest.raises(ToolError, match="I am tired"):
        await server.call("x", {}, sandbox, timeout_s=10)


async def left(sandbox: Sandbox, how: str) -> str:
    """Return processes of such a server that still run after a while."""
    for _ in range(500):
        found = await sandbox.exec(f"pgrep -af 'odd_server.py {how}$' || true")
        if not found.stdout:
            break
        await asyncio.sleep(0.1)
    return found.stdout.decode()


@EACH
async def test_a_server_that_never_answers_costs_the_call_its_time_and_is_replaced(
    sandbox: Sandbox,
) -> None:
    tool = odd_tool("late")
    first = await tool.run({}, sandbox, CONTEXT)

    late = await tool.run({"sleep": 600}, sandbox, ToolContext(1.0, 16384))
    again = await tool.run({}, sandbox, CONTEXT)

    assert late.timed_out
    assert late.text.startswith("error: the tool server did not answer within 1 s")
    assert again.text.startswith("pid ")
    assert again.text != first.text


async def test_a_call_that_was_cancelled_leaves_no_answer_to_the_next(sandbox: Sandbox) -> None:
    tool = odd_tool("late")
    first = await tool.run({}, sandbox, CONTEXT)
    slow = asyncio.create_task(tool.run({"sleep": 1}, sandbox, CONTEXT))
    await asyncio.sleep(0.3)
    slow.cancel()
    await asyncio.wait([slow])

    again = await tool.run({}, sandbox, CONTEXT)

    assert again.text.startswith("pid ")
    assert again.text != first.text, "the answer of the cancelled call, or its server, was used"


async def test_a_server_that_ends_after_its_answer_is_started_again(sandbox: Sandbox) -> None:
    tool = odd_tool("dies_later")

    assert (await tool.run({}, sandbox, CONTEXT)).text == "last words"
    assert not await left(sandbox, "dies_later")
    ended = await tool.run({}, sandbox, CONTEXT)
    assert ended.text.startswith("error: the tool server failed: it ")
    assert (await tool.run({}, sandbox, CONTEXT)).text == "last words"


async def test_a_policy_that_kills_the_server_or_its_pipes_costs_itself_a_call(
    sandbox: Sandbox,
) -> None:
    tool = odd_tool("well")
    for attack in (
        "pkill -9 -f 'odd_server.py well$'",
        'rm -rf "${TMPDIR:-/tmp}"/swe-rollout-mcp-*',
        'cd "${TMPDIR:-/tmp}"/swe-rollout-mcp-* && rm in out && touch in && ln -s /dev/zero out',
        'cd "${TMPDIR:-/tmp}"/swe-rollout-mcp-* && rm out && ln -s /dev/null out',
    ):
        assert (await tool.run({}, sandbox, CONTEXT)).text.startswith("pid ")
        await sandbox.exec(attack)
        await asyncio.sleep(0.2)

        broken = await tool.run({}, sandbox, ToolContext(3.0, 16384))

        assert broken.text.startswith("error: the tool server"), attack


async def test_long_answers_arrive_whole_and_are_cut_for_the_policy(sandbox: Sandbox) -> None:
    seen = await call(sandbox, "large", output_bytes=1024)

    assert seen.truncated
    assert len(seen.text.encode()) <= 1024
    assert seen.text.startswith("lll")


async def test_long_arguments_arrive_whole_and_longer_ones_are_refused(sandbox: Sandbox) -> None:
    tool = odd_tool("well")
    context = ToolContext(30.0, 1 << 20)

    seen = await tool.run({"x": "a" * 700_000}, sandbox, context)
    refused = await tool.run({"x": "a" * (5 << 20)}, sandbox, context)

    assert len(seen.text) > 700_000
    assert refused.text == "error: the arguments have over 4 MiB"
    assert (await tool.run({}, sandbox, CONTEXT)).text.startswith("pid ")


async def test_what_a_server_asks_of_the_client_is_refused_except_a_ping(sandbox: Sandbox) -> None:
    ping, sampling = json.loads((await call(sandbox, "asks_back")).text)

    assert (ping["id"], ping["result"]) == ("p", {})
    assert (sampling["id"], sampling["error"]["code"]) == ("s", -32601)


@EACH
async def test_a_command_that_is_not_there_is_an_observation(sandbox: Sandbox) -> None:
    server = StdioServer(options("well").model_copy(update={"command": ("no-such-server",)}))

    with pytest.raises(ToolError) as failed:
        await server.call("x", {}, sandbox, timeout_s=10)
    assert "no-such-server: not found" in str(failed.value)


async def test_the_list_of_tools_is_bounded(sandbox: Sandbox) -> None:
    server = StdioServer(options("well"))
    (tool,) = await server.tools(sandbox, timeout_s=30)
    await server.stop(sandbox)
    assert tool.name == "odd.tool"

    endless = StdioServer(options("pages"))
    with pytest.raises(ToolError, match="over 32 pages"):
        await endless.tools(sandbox, timeout_s=30)
    await endless.stop(sandbox)


@EACH
async def test_the_arguments_and_environment_of_the_job_reach_the_server(sandbox: Sandbox) -> None:
    command = ("sh", "-c", 'echo "$TOKEN" "$@" >&2; exit 1', "sh", "$HOME", "'", ";", "")
    given_ = options("well").model_copy(update={"command": command, "env": {"TOKEN": "a b"}})

    with pytest.raises(ToolError, match=r"a b \$HOME ' ;$"):
        await StdioServer(given_).call("x", {}, sandbox, timeout_s=10)
