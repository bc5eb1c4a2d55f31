"""What a policy writes down for itself: notes and a list, which never enter the diff."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from swe_rollout.agent.tools import load_tool
from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import EACH, folder_of, said, started, use

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "a\\n\tEOF\nEOF\n$(touch pwned) \"'"


@pytest.fixture(autouse=True)
def forgetful(sandbox: Sandbox) -> None:
    subprocess.run(["rm", "-rf", notes(sandbox).parent], check=True)


def notes(sandbox: Sandbox) -> Path:
    return folder_of(sandbox).parent / "tmp/.agent/memory"


@EACH
async def test_a_note_is_kept_outside_the_repository_l19(sandbox: Sandbox) -> None:
    assert await said(sandbox, "MemoryRead") == "the memory is empty"
    assert "kept plans/a.md, 6 bytes" in await said(
        sandbox, "MemoryWrite", file_path="plans/a.md", content="a plan"
    )
    await said(sandbox, "MemoryWrite", file_path="/memory/index.md", content=HOSTILE)

    assert await said(sandbox, "MemoryRead", file_path="/memory/plans/a.md") == "a plan"
    assert await said(sandbox, "MemoryRead") == (
        f"index.md:\n{HOSTILE}\nnotes:\nindex.md\nplans/a.md"
    )
    assert (notes(sandbox) / "index.md").read_text() == HOSTILE
    assert not list(folder_of(sandbox).iterdir())


async def test_a_large_note_is_kept_wt7(sandbox: Sandbox) -> None:
    text = "line\n" * 40_000

    await said(sandbox, "MemoryWrite", file_path="n", content=text)
    seen = await use(sandbox, "MemoryRead", {"file_path": "n"}, output_bytes=1 << 20)
    assert seen.text == text
    assert "at most 262144 bytes" in await said(
        sandbox, "MemoryWrite", file_path="n", content="x" * (1 << 19)
    )


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", ".", "", "a/..", "out/x", "top/etc/new", "out"]
)
@pytest.mark.parametrize("tool", ["MemoryRead", "MemoryWrite"])
async def test_no_path_leads_out_of_the_memory(sandbox: Sandbox, tool: str, path: str) -> None:
    await said(sandbox, "MemoryWrite", file_path="index.md", content="x")
    (notes(sandbox) / "out").symlink_to(folder_of(sandbox))
    (notes(sandbox) / "top").symlink_to("/")

    more = {"content": "x"} if tool == "MemoryWrite" else {}
    assert (await use(sandbox, tool, {"file_path": path, **more})).text.startswith("error: ")
    assert not list(folder_of(sandbox).iterdir())


async def test_a_missing_note_is_a_failure_wt11(sandbox: Sandbox) -> None:
    seen = await said(sandbox, "MemoryRead", file_path="gone.md")
    assert seen.startswith("error: ")
    assert "does not exist" in seen


async def test_the_number_of_notes_is_bounded(sandbox: Sandbox) -> None:
    await said(sandbox, "MemoryWrite", file_path="index.md", content="x")
    for number in range(200):
        (notes(sandbox) / f"n{number}").touch()

    assert "there are 200 notes" in await said(
        sandbox, "MemoryWrite", file_path="one-more", content="x"
    )
    assert "kept" in await said(sandbox, "MemoryWrite", file_path="n1", content="x")


async def test_a_memory_that_is_a_link_elsewhere_is_refused(sandbox: Sandbox) -> None:
    notes(sandbox).parent.mkdir()
    notes(sandbox).symlink_to(folder_of(sandbox))

    assert "no writable folder" in await said(sandbox, "MemoryWrite", file_path="a", content="x")
    assert not list(folder_of(sandbox).iterdir())


async def test_no_folder_of_the_repository_is_used(tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        (folder_of(sandbox).parent / ".git").mkdir()

        seen = await said(sandbox, "MemoryWrite", file_path="a", content="x")
        assert seen == "error: the sandbox has no writable folder outside the repository"
        assert not list((folder_of(sandbox).parent / "tmp").iterdir())


TODOS = [
    {"content": "look", "status": "completed", "activeForm": "Looking"},
    {"content": "$(touch x)", "status": "in_progress", "id": "2"},
    {"content": "test", "status": "pending", "priority": "high"},
]
SHOWN = "1. [x] look\n2. [~] $(touch x)\n3. [ ] test"


def stored(sandbox: Sandbox) -> Path:
    return folder_of(sandbox).parent / "tmp/.agent/todos.json"


@EACH
async def test_what_was_written_last_is_read(sandbox: Sandbox) -> None:
    assert await said(sandbox, "TodoRead") == "the list is empty"
    assert await said(sandbox, "TodoWrite", todos=TODOS) == SHOWN
    assert await said(sandbox, "TodoRead") == SHOWN
    assert await said(sandbox, "TodoWrite", todos=[]) == "the list is empty"
    assert await said(sandbox, "TodoRead") == "the list is empty"
    assert not list(folder_of(sandbox).iterdir())


async def test_episodes_do_not_share_a_list(sandbox: Sandbox, tmp_path: Path) -> None:
    await said(sandbox, "TodoWrite", todos=TODOS)
    async with started(tmp_path) as other:
        assert await said(other, "TodoRead") == "the list is empty"


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[" * 100_000, b'[{"content": 1}]', b"\xff", b"1" * 9000, b"[" * (2 << 20)],
)
async def test_a_damaged_list_is_a_failure_and_not_a_list(sandbox: Sandbox, data: bytes) -> None:
    await said(sandbox, "TodoWrite", todos=TODOS)
    stored(sandbox).write_bytes(data)

    assert (await said(sandbox, "TodoRead")).startswith("error: the list ")
    assert await said(sandbox, "TodoWrite", todos=TODOS) == SHOWN


async def test_a_list_out_of_bounds_is_no_call() -> None:
    spec = load_tool("TodoWrite").spec
    for todos in (
        [TODOS[0]] * 101,
        [{"content": "x" * 1001, "status": "pending"}],
        [{"content": "x", "status": "done"}],
        [{"content": "x"}],
        [{"content": "x", "status": "pending", "more": "x"}],
        "x",
    ):
        assert spec.problems({"todos": todos})
