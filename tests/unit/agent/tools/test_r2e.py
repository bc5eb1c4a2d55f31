"""Rows L6 to L10: R2E's tools by their names and parameters, without the defects they had."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.types.turn import CallStatus, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
R2E = toolbox(["r2e"])


async def see(sandbox: Sandbox, name: str, **arguments: object) -> str:
    spec = next(each for each in R2E.specs if each.name == name)
    assert spec.problems(arguments) == []
    call = ToolCall(CallStatus.OK, "", name, arguments)
    return (await R2E.run(call, sandbox, ToolContext(20, 16384))).text


async def test_the_sets_have_the_names_of_their_prompts() -> None:
    parameters = {spec.name: list(spec.arguments.properties) for spec in R2E.specs}

    assert parameters == {
        "file_editor": [
            *("command", "path", "file_text", "old_str", "new_str", "insert_line"),
            *("view_range", "concise"),
        ],
        "execute_bash": ["cmd", "command"],
        "search": ["search_term", "path", "python_only"],
        "finish": ["command", "result"],
        "submit": [],
    }
    assert [spec.name for spec in toolbox(["r2e_edit"]).specs] == [
        *("str_replace_editor", "execute_bash", "submit"),
    ]


@pytest.mark.parametrize("argument", ["cmd", "command"])
async def test_a_command_has_either_name(sandbox: Sandbox, argument: str) -> None:
    """Row WT1: the command is a script, whatever it begins with."""
    script = "cd / && pwd; VAR=1 sh -c 'echo $VAR'; for i in 1 2; do echo $i; done; echo e >&2"

    assert await see(sandbox, "execute_bash", **{argument: script}) == (
        "exit code: 0\n[STDOUT]\n/\n1\n1\n2\n[STDERR]\ne"
    )


async def test_one_command_is_needed(sandbox: Sandbox) -> None:
    assert await see(sandbox, "execute_bash") == "error: give one command, as cmd"
    assert "one command" in await see(sandbox, "execute_bash", cmd="a", command="b")


async def test_denied_commands_are_refused_and_the_job_may_allow_them(sandbox: Sandbox) -> None:
    """Row WT10."""
    assert await see(sandbox, "execute_bash", cmd="true; git --version") == (
        "error: git is not to be used in this task; nothing was run"
    )
    box = toolbox([ToolUse(use="R2EBashExecutor", with_={"deny": []})])
    call = ToolCall(CallStatus.OK, "", "r2e_bash_executor", {"cmd": "git --version"})
    assert "git version" in (await box.run(call, sandbox, ToolContext(20, 999))).text


async def test_a_search_tells_files_or_the_lines_of_one(sandbox: Sandbox) -> None:
    """Row WT3: a term is text, no file is left out, and Python alone is only on request."""
    root = Path(sandbox.workdir)
    for number in range(120):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "f.py").write_text("a.b\n")
    (root / "x.md").write_text("aXb\na.b\nA.B\na.b\n")

    seen = await see(sandbox, "search", search_term="a.b")
    assert seen.startswith("122 matching lines in 121 files\nd0/f.py (1)\n")
    assert seen.endswith("\nx.md (2)")
    assert (await see(sandbox, "search", search_term="a.b", python_only=True)).startswith("120 ")
    assert await see(sandbox, "search", search_term="a.b", path="x.md") == (
        "2 matching lines in 1 file\nx.md\n     2:a.b\n     4:a.b"
    )
    assert await see(sandbox, "search", search_term="none", path="x.md") == (
        "0 matching lines in 0 files"
    )
    assert (await see(sandbox, "search", search_term="")).startswith("error: ")
