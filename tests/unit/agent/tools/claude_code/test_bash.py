"""The `Bash` tool of the set: the plain one, with a folder and a limit of each call."""

from __future__ import annotations

import pytest

from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.shell import k8s_bash
from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.claude_code.conftest import files, folder_of, said, use

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(("tool", "limit"), [("Bash", "timeout"), ("k8s_bash", "timeout_ms")])
async def test_a_script_runs_in_a_folder_for_a_time_l12(
    sandbox: Sandbox, tool: str, limit: str
) -> None:
    files(sandbox, {"a'b/f": b"x"})

    seen = await use(sandbox, tool, {"command": "cd . && pwd; ls", "working_directory": "a'b"})
    assert f"{folder_of(sandbox)}/a'b\nf" in seen.text
    assert seen.exit_code == 0
    slow = await use(sandbox, tool, {"command": "echo begun; sleep 60", limit: 300})
    assert slow.timed_out
    assert "begun" in slow.text


async def test_a_limit_is_at_most_that_of_the_session(sandbox: Sandbox) -> None:
    call = {"command": "sleep 60", "timeout": 10**9}
    assert (await use(sandbox, "Bash", call, timeout_s=0.3)).timed_out
    assert "timeout must be" in await said(sandbox, "Bash", command="true", timeout=0)


async def test_a_folder_that_is_none_is_a_failure(sandbox: Sandbox) -> None:
    seen = await said(sandbox, "Bash", command="true", working_directory="gone")
    assert seen.startswith("error: ")
    assert "is not a folder" in seen


async def test_denied_commands_are_refused_wherever_they_stand_l12(sandbox: Sandbox) -> None:
    tool = k8s_bash(deny=("git",))

    seen = await tool.run({"command": "true; git --version"}, sandbox, ToolContext(20, 1024))
    assert seen.text.startswith("error: ")
    assert "git" in seen.text
