"""Row L21: the tools of VERL's coding agents do what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import CallStatus, Observation, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
CODING = toolbox(["coding"])


async def call(sandbox: Sandbox, name: str, **arguments: object) -> Observation:
    spec = next(each for each in CODING.specs if each.name == name)
    assert spec.problems(arguments) == []
    given = ToolCall(CallStatus.OK, "", name, arguments)
    return await CODING.run(given, sandbox, ToolContext(20, 16384))


async def see(sandbox: Sandbox, name: str, **arguments: object) -> str:
    return (await call(sandbox, name, **arguments)).text


async def test_the_set_has_the_parameters_of_its_configuration() -> None:
    assert {spec.name: list(spec.arguments.properties) for spec in CODING.specs} == {
        "view_file": ["file_path", "start_line", "end_line"],
        "edit_file": ["file_path", "old_content", "new_content", "line_number"],
        "create_file": ["file_path", "content"],
        "search_code": ["query", "file_pattern", "case_sensitive"],
        "search_files": ["pattern", "directory"],
        "execute_bash": ["command", "working_dir"],
        "run_tests": ["test_command", "test_file", "working_dir"],
    }


async def test_a_file_is_made_seen_and_edited(sandbox: Sandbox) -> None:
    file = Path(sandbox.workdir, "d", "f.py")

    await see(sandbox, "create_file", file_path="d/f.py", content="a\nb\na\n")
    assert "exists" in await see(sandbox, "create_file", file_path="d/f.py", content="")
    assert await see(sandbox, "view_file", file_path="d/f.py", start_line=2) == (
        "     2\tb\n     3\ta"
    )
    assert await see(sandbox, "view_file", file_path="d/f.py", end_line=1) == "     1\ta"
    many = await see(sandbox, "edit_file", file_path="d/f.py", old_content="a", new_content="c")
    assert "more than once" in many
    await see(
        sandbox, "edit_file", file_path="d/f.py", old_content="a", new_content="c", line_number=3
    )
    assert file.read_text() == "a\nb\nc\n"  # noqa: ASYNC240 - a small file
    await see(sandbox, "edit_file", file_path="d/f.py", new_content="top", line_number=0)
    await see(sandbox, "edit_file", file_path="d/f.py", old_content="b\n")
    assert file.read_text() == "top\na\nc\n"  # noqa: ASYNC240 - a small file


@pytest.mark.parametrize(
    ("old", "line", "why"),
    [
        ("a", 2, "not in line 2"),
        ("a", 3, "more than once in line 3"),
        ("a", 9, "no line 9"),
        ("a", 0, "no line 0"),
        ("a", -1, "no line -1"),
        ("", 1, "old_str is empty"),
    ],
)
async def test_the_line_of_an_edit_must_hold_it(
    sandbox: Sandbox, old: str, line: int, why: str
) -> None:
    Path(sandbox.workdir, "f").write_text("a\nb\naa\n")  # noqa: ASYNC240 - a small file

    seen = await see(sandbox, "edit_file", file_path="f", old_content=old, line_number=line)
    assert seen.startswith("error: ")
    assert why in seen


async def test_an_edit_needs_a_place(sandbox: Sandbox) -> None:
    assert "give old_content" in await see(sandbox, "edit_file", file_path="f", new_content="x")


async def test_code_and_files_are_found(sandbox: Sandbox) -> None:
    Path(sandbox.workdir, "a.py").write_text("Needle\n")  # noqa: ASYNC240 - a small file
    Path(sandbox.workdir, "a.md").write_text("needle\n")  # noqa: ASYNC240 - a small file

    assert (await see(sandbox, "search_code", query="needle")).startswith("2 matching lines")
    assert await see(sandbox, "search_code", query="needle", file_pattern="*.py") == (
        "1 matching line in 1 file\na.py\n     1:Needle"
    )
    assert (await see(sandbox, "search_code", query="Needle", case_sensitive=True)).startswith("1 ")
    assert await see(sandbox, "search_files", pattern="*.md") == "1 file\na.md"


async def test_commands_and_tests_start_in_a_folder(sandbox: Sandbox) -> None:
    Path(sandbox.workdir, "it's d").mkdir()  # noqa: ASYNC240 - a small file

    assert await see(sandbox, "execute_bash", command="pwd", working_dir="/usr") == (
        "exit code: 0\nstdout:\n/usr"
    )
    tests = await call(
        sandbox,
        "run_tests",
        test_command="false || printf '%s\\n'",
        test_file="$(id) 'x'",
        working_dir="it's d",
    )
    assert tests.text == "exit code: 0\nstdout:\n$(id) 'x'"
    missing = await call(sandbox, "execute_bash", command="pwd", working_dir="nothing")
    assert missing.exit_code in (126, 127)
