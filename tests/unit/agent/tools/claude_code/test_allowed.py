"""Folders that a job allows tools to write to."""

from __future__ import annotations

import pytest

from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.errors import UsageError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from unit.agent.tools.claude_code.conftest import files, folder_of

on_sandbox = pytest.mark.asyncio(loop_scope="module")

CALLS: dict[str, dict[str, object]] = {
    "Write": {"content": "new"},
    "Edit": {"old_string": "old", "new_string": "new"},
    "MultiEdit": {"edits": [{"old_string": "old", "new_string": "new"}]},
}


async def write(sandbox: Sandbox, tool: str, path: str) -> str:
    made = load_tool(ToolUse(use=tool, with_={"folders": ["src", "new"]}))

    arguments = {"file_path": path, **CALLS[tool]}
    return (await made.run(arguments, sandbox, ToolContext(20, 1024))).text


@on_sandbox
@pytest.mark.parametrize("tool", CALLS)
async def test_only_these_folders_are_written_to_l14(sandbox: Sandbox, tool: str) -> None:
    files(sandbox, {"src/f": b"old", "f": b"old", "srcs/f": b"old"})
    root = folder_of(sandbox)
    (root / "src/out").symlink_to("..")
    (root / "in").symlink_to("src/f")

    for path in ("f", "srcs/f", "src/../f", "src/out/f", "src/out/x", "src/x/../../y", "/tmp/x"):  # noqa: S108
        seen = await write(sandbox, tool, path)
        assert seen.startswith("error: ")
        assert "is not in src or new, where changes belong" in seen
    assert not seen_as_new(sandbox)
    assert (await write(sandbox, tool, "in")).startswith(("edited", "replaced"))
    assert seen_as_new(sandbox) == ["src/f"]


@on_sandbox
async def test_a_new_file_may_be_in_a_new_folder(sandbox: Sandbox) -> None:
    files(sandbox, {"src/f": b"old", "new/f": b""})

    assert (await write(sandbox, "Write", "src/a/b/c")).startswith("created")
    assert (await write(sandbox, "Write", str(folder_of(sandbox) / "new/d/e"))).startswith("cre")


def seen_as_new(sandbox: Sandbox) -> list[str]:
    root = folder_of(sandbox)
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path.relative_to(root)) for path in found if path.read_bytes() == b"new"]


def test_what_is_no_list_of_paths_is_refused() -> None:
    for folders in ("src", [1]):
        with pytest.raises(UsageError) as raised:
            load_tool(ToolUse(use="Write", with_={"folders": folders}))
        assert "list of paths" in raised.value.why
