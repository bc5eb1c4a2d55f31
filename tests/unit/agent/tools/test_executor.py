"""Row L2: `bash_executor` with a folder, a time and output on request."""

from __future__ import annotations

import pytest

from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import Tool, ToolContext
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.types.turn import Observation

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOL = load_tool("bash_executor")


async def run(
    sandbox: Sandbox, tool: Tool = TOOL, *, timeout_s: float = 20, **arguments: object
) -> Observation:
    assert tool.spec.problems(arguments) == []
    return await tool.run(arguments, sandbox, ToolContext(timeout_s, 16384))


async def test_a_command_starts_in_its_folder(sandbox: Sandbox) -> None:
    seen = await run(sandbox, command="pwd; echo e >&2; exit 4", working_directory="/usr")
    assert seen.text == "exit code: 4\nstdout:\n/usr\nstderr:\ne"


async def test_the_policy_s_time_is_bounded_by_the_job_s(sandbox: Sandbox) -> None:
    short = await run(sandbox, command="sleep 20", timeout=0.2)
    assert "killed after 0.2 s" in short.text
    bounded = await run(sandbox, command="sleep 20", timeout=10_000, timeout_s=0.3)
    assert "killed after 0.3 s" in bounded.text
    default = load_tool(ToolUse(use="BashExecutor", with_={"timeout": 0.4}))
    assert "killed after 0.4 s" in (await run(sandbox, default, command="sleep 20")).text


async def test_output_can_be_left_out(sandbox: Sandbox) -> None:
    seen = await run(sandbox, command="echo a; exit 2", capture_output=False)
    assert (seen.text, seen.exit_code) == ("exit code: 2", 2)


async def test_a_job_can_deny_commands_by_name_and_by_pattern(sandbox: Sandbox) -> None:
    """Row T8."""
    tool = load_tool(
        ToolUse(use="bash_executor", with_={"deny": ["curl"], "deny_patterns": [r"pip\s+install"]})
    )

    assert "Not to be used: curl." in tool.spec.description
    for command in ("ls; curl x", "python -m pip  install x"):
        assert "is not to be used in this task" in (await run(sandbox, tool, command=command)).text
    assert (await run(sandbox, tool, command="echo curl")).text.endswith("curl")
