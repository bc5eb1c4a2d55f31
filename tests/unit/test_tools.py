"""The agent's tools against a real shell and real files."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext, cut_middle
from swe_rollout.errors import SandboxError, UsageError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox
from swe_rollout.trajectory import CallStatus, Observation, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOOLS = toolbox(["bash", "str_replace_editor", "submit"])


class FolderSandbox(Sandbox):
    """A folder and this machine's shell: the least that is a sandbox to a tool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def workdir(self) -> str:
        return str(self.folder)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd or self.folder,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()
            return ExecResult(137, b"", b"", timed_out=True)
        return ExecResult(
            process.returncode or 0,
            out[:max_output],
            err[:max_output],
            stdout_bytes=len(out),
            stderr_bytes=len(err),
        )

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        data = (self.folder / path).read_bytes()
        if len(data) > max_bytes:
            raise SandboxError(f"{path} is too large")
        return data

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        part.write_bytes(data)
        part.chmod(mode)
        part.rename(target)

    async def close(self) -> None:
        pass


@pytest.fixture
def sandbox(tmp_path: Path) -> FolderSandbox:
    return FolderSandbox(tmp_path)


async def call(
    sandbox: Sandbox,
    name: str,
    arguments: dict[str, object],
    *,
    timeout_s: float = 20.0,
    output_bytes: int = 16384,
) -> Observation:
    return await TOOLS.run(
        ToolCall(CallStatus.OK, "", name, arguments), sandbox, ToolContext(timeout_s, output_bytes)
    )


async def bash(
    sandbox: Sandbox, command: str, *, timeout_s: float = 20.0, output_bytes: int = 16384
) -> Observation:
    return await call(
        sandbox, "bash", {"command": command}, timeout_s=timeout_s, output_bytes=output_bytes
    )


async def edit(sandbox: Sandbox, command: str, path: str, **arguments: object) -> str:
    given = {"command": command, "path": path, **arguments}
    return (await call(sandbox, "str_replace_editor", given)).text


async def test_bash_shows_streams_apart_with_the_exit_code(sandbox: FolderSandbox) -> None:
    seen = await bash(
        sandbox, "echo out; cd / && X=1; for i in 1 2; do echo $i; done; echo e >&2; exit 3"
    )

    assert seen.text == "exit code: 3\nstdout:\nout\n1\n2\nstderr:\ne"
    assert (seen.exit_code, seen.timed_out, seen.truncated) == (3, False, False)


async def test_bash_says_when_there_was_no_output(sandbox: FolderSandbox) -> None:
    assert (await bash(sandbox, "true")).text == "exit code: 0 (no output)"


async def test_bash_tells_a_timeout_and_for_how_long_the_command_ran(
    sandbox: FolderSandbox,
) -> None:
    seen = await bash(sandbox, "exec sleep 20", timeout_s=0.3)

    assert seen.timed_out
    assert "killed after 0.3 s" in seen.text
    assert 0.2 < seen.duration_s < 10


async def test_bash_shows_bytes_that_are_no_text_and_keeps_colours(sandbox: FolderSandbox) -> None:
    seen = await bash(sandbox, r"printf 'a\000b\377c \033[31mred'")

    assert seen.text == "exit code: 0\nstdout:\na\\x00b�c \x1b[31mred"


@pytest.mark.parametrize("limit", [256, 1000, 16384])
async def test_bash_output_is_cut_in_the_middle_within_the_limit(
    sandbox: FolderSandbox, limit: int
) -> None:
    seen = await bash(
        sandbox, "seq 1 50000; echo last; seq 1 9000 >&2; echo late >&2", output_bytes=limit
    )

    assert seen.truncated
    assert len(seen.text.encode()) <= limit
    assert seen.text.startswith("exit code: 0\nstdout:\n1\n")
    assert "bytes omitted ...]" in seen.text
    assert seen.text.endswith("late")


async def test_a_short_stream_leaves_its_room_to_the_other(sandbox: FolderSandbox) -> None:
    seen = await bash(sandbox, "seq 1 400; echo problem >&2", output_bytes=2000)

    assert not seen.truncated
    assert seen.text.endswith("400\nstderr:\nproblem")


async def test_bash_says_how_much_the_sandbox_did_not_keep(sandbox: FolderSandbox) -> None:
    seen = await bash(sandbox, "head -c 3000000 /dev/zero | tr '\\0' x")

    assert seen.truncated
    assert f"[... {3_000_000 - MAX_OUTPUT_BYTES} more bytes were not kept ...]" in seen.text


async def test_a_nul_in_a_command_is_refused_before_any_shell_sees_it(
    sandbox: FolderSandbox,
) -> None:
    assert (await bash(sandbox, "ls\0")).text == "error: a command can't hold a NUL character"


@given(st.text(max_size=300), st.integers(0, 200))
def test_a_cut_text_fits_and_says_exactly_how_much_is_gone(text: str, limit: int) -> None:
    text = text.encode(errors="ignore").decode()
    cut = cut_middle(text, limit)

    size = len(text.encode())
    assert len(cut.encode()) <= limit or cut == text
    assert (cut == text) == (size <= limit)
    if "\n[... " in cut and cut != text:
        head, _, rest = cut.partition("\n[... ")
        omitted, _, tail = rest.partition(" bytes omitted ...]\n")
        assert len(head.encode()) + int(omitted) + len(tail.encode()) == size
        assert text.startswith(head)
        assert text.endswith(tail)


async def test_view_numbers_lines_and_takes_a_range(sandbox: FolderSandbox) -> None:
    (sandbox.folder / "a b.py").write_bytes(b"one\n\ttwo\nthree\nfour")

    assert await edit(sandbox, "view", "a b.py") == (
        "     1\tone\n     2\t\ttwo\n     3\tthree\n     4\tfour"
    )
    assert (
        await edit(sandbox, "view", "a b.py", view_range=[2, 3]) == "     2\t\ttwo\n     3\tthree"
    )
    assert await edit(sandbox, "view", "a b.py", view_range=[4, -1]) == "     4\tfour"


@pytest.mark.parametrize("wanted", [[0, 1], [3, 1], [9, 9], [1], [1, 2, 3], [2, -2]])
async def test_a_range_outside_the_file_is_refused_with_what_is_possible(
    sandbox: FolderSandbox, wanted: list[int]
) -> None:
    (sandbox.folder / "f").write_text("1\n2\n3\n")

    seen = await edit(sandbox, "view", "f", view_range=wanted)
    assert (
        seen
        == "error: view_range must be [first, last]: first from 1 to 3, last from first on, or -1"
    )


async def test_view_lists_a_directory_two_levels_deep_without_hidden_names(
    sandbox: FolderSandbox,
) -> None:
    for name in ("src/pkg/deep/x.py", "src/a'b.py", ".git/config", "src/.env", "new\nline"):
        (sandbox.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox.folder / name).write_text("")

    seen = await edit(sandbox, "view", ".")

    head, *names = seen.split("\n")
    assert head.endswith("two levels deep, hidden entries left out:")
    assert names == ["new", "line", "src/", "src/a'b.py", "src/pkg/"]


async def test_view_refuses_what_is_no_text_file(sandbox: FolderSandbox) -> None:
    (sandbox.folder / "bin").write_bytes(b"\x7fELF\0\0")
    os.mkfifo(sandbox.folder / "pipe")

    assert await edit(sandbox, "view", "bin") == (
        f"error: {sandbox.folder}/bin is a binary file of 6 bytes"
    )
    assert "not a regular file" in await edit(sandbox, "view", "pipe")
    assert "does not exist" in await edit(sandbox, "view", "nothing")
    assert "is a directory" in await edit(sandbox, "str_replace", ".", old_str="a", new_str="b")


async def test_a_file_too_large_to_edit_is_an_observation_and_not_a_lost_sandbox(
    sandbox: FolderSandbox,
) -> None:
    with (sandbox.folder / "big").open("wb") as file:
        file.truncate(100 << 20)

    assert "104857600 bytes" in await edit(sandbox, "view", "big")


async def test_create_writes_the_text_and_its_folders_and_never_over_something(
    sandbox: FolderSandbox,
) -> None:
    text = 'tab\there\\n EOF\nEOF\n$(touch pwned) `id` "quotes" ü\r\n no newline at the end'

    assert "created" in await edit(sandbox, "create", "new/dir/f.txt", file_text=text)
    assert (sandbox.folder / "new/dir/f.txt").read_bytes() == text.encode()
    assert "exists" in await edit(sandbox, "create", "new/dir/f.txt", file_text="other")
    assert "exists" in await edit(sandbox, "create", "new/dir", file_text="other")
    assert (sandbox.folder / "new/dir/f.txt").read_bytes() == text.encode()
    assert await edit(sandbox, "create", "x") == "error: the command create needs file_text"


async def test_str_replace_changes_the_span_alone(sandbox: FolderSandbox) -> None:
    file = sandbox.folder / "Makefile"
    file.write_bytes(b"all:\r\n\tx = 1\r\n\r\nna\xefve\n    keep  \n")

    seen = await edit(sandbox, "str_replace", "Makefile", old_str="\tx = 1", new_str="\t  x = 2 ")

    assert file.read_bytes() == b"all:\r\n\t  x = 2 \r\n\r\nna\xefve\n    keep  \n"
    assert seen == (
        f"edited {file}; lines 1 to 5 now:\n"
        "     1\tall:\r\n     2\t\t  x = 2 \r\n     3\t\r\n     4\tna�ve\n     5\t    keep  "
    )


async def test_str_replace_without_new_str_deletes(sandbox: FolderSandbox) -> None:
    (sandbox.folder / "f").write_text("keep\ndrop\n")

    await edit(sandbox, "str_replace", "f", old_str="drop\n")
    assert (sandbox.folder / "f").read_text() == "keep\n"


@pytest.mark.parametrize(
    ("old", "why"),
    [
        ("absent", "does not occur"),
        ("aa", "occurs more than once in"),
        ("", "old_str is empty"),
        ("x\ny", r"the file's lines end in \r\n"),
    ],
)
async def test_str_replace_needs_exactly_one_match_and_says_what_is_wrong(
    sandbox: FolderSandbox, old: str, why: str
) -> None:
    content = b"aaa\r\nx\r\ny\r\n"
    (sandbox.folder / "f").write_bytes(content)

    assert why in await edit(sandbox, "str_replace", "f", old_str=old, new_str="n")
    assert (sandbox.folder / "f").read_bytes() == content


async def test_two_matches_are_told_with_their_lines(sandbox: FolderSandbox) -> None:
    (sandbox.folder / "f").write_text("x = 1\ny\nx = 1\n")

    seen = await edit(sandbox, "str_replace", "f", old_str="x = 1", new_str="x = 2")
    assert "such as at lines 1 and 3" in seen


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        (b"1\n2\n", 0, "new", b"new\n1\n2\n"),
        (b"1\n2\n", 1, "new\n", b"1\nnew\n2\n"),
        (b"1\n2\n", 2, "    new", b"1\n2\n    new\n"),
        (b"1\r\n2\r\n", 1, "new", b"1\r\nnew\r\n2\r\n"),
        (b"1\n2", 2, "new", b"1\n2\nnew"),
        (b"", 0, "new", b"new\n"),
        (b"form\x0cfeed\x85\n2\n", 1, "new", b"form\x0cfeed\x85\nnew\n2\n"),
    ],
)
async def test_insert_puts_lines_behind_a_line(
    sandbox: FolderSandbox, before: bytes, line: int, text: str, after: bytes
) -> None:
    (sandbox.folder / "f").write_bytes(before)

    assert "edited" in await edit(sandbox, "insert", "f", insert_line=line, new_str=text)
    assert (sandbox.folder / "f").read_bytes() == after


@pytest.mark.parametrize("line", [-1, 3, None])
async def test_insert_refuses_a_line_that_is_not_there(
    sandbox: FolderSandbox, line: int | None
) -> None:
    (sandbox.folder / "f").write_text("1\n2\n")
    where = {} if line is None else {"insert_line": line}

    seen = await edit(sandbox, "insert", "f", new_str="x", **where)
    assert seen == "error: insert_line must be an integer from 0 to 2"


async def test_an_edit_keeps_the_mode_and_follows_a_link(sandbox: FolderSandbox) -> None:
    script = sandbox.folder / "run.sh"
    script.write_text("#!/bin/sh\necho a\n")
    script.chmod(0o755)
    (sandbox.folder / "link").symlink_to("run.sh")

    await edit(sandbox, "str_replace", "link", old_str="echo a", new_str="echo b")

    assert (sandbox.folder / "link").is_symlink()
    assert script.read_text() == "#!/bin/sh\necho b\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755


@pytest.mark.parametrize("path", ["$(touch pwned)", "-rf", "a'b\"c", " lead", "naïve 🙂.py"])
async def test_a_path_is_never_read_as_shell(sandbox: FolderSandbox, path: str) -> None:
    assert "created" in await edit(sandbox, "create", path, file_text="x\n")
    await edit(sandbox, "str_replace", path, old_str="x", new_str="y")

    assert [entry.name for entry in sandbox.folder.iterdir()] == [path]
    assert (sandbox.folder / path).read_text() == "y\n"


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_a_path_no_file_can_have_is_refused(sandbox: FolderSandbox, path: str) -> None:
    assert "error: the path" in await edit(sandbox, "view", path)


async def test_what_the_file_system_refuses_is_an_observation(sandbox: FolderSandbox) -> None:
    (sandbox.folder / "file").write_text("x")

    seen = await edit(sandbox, "create", "file/below", file_text="x")
    assert seen in {"error: Not a directory", "error: File exists"}


async def test_a_lost_sandbox_is_never_an_observation(sandbox: FolderSandbox) -> None:
    class Lost(FolderSandbox):
        async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:  # noqa: ARG002
            raise ConnectionResetError(path)

    (sandbox.folder / "f").write_text("x")

    with pytest.raises(ConnectionResetError):
        await edit(Lost(sandbox.folder), "view", "f")


async def test_submit_answers_and_ends_the_episode(sandbox: FolderSandbox) -> None:
    assert (await call(sandbox, "submit", {})).text == "The work is handed in."
    ends = [
        name
        for name in ("bash", "str_replace_editor", "submit")
        if TOOLS.ends_episode(ToolCall(CallStatus.OK, "", name))
    ]
    assert ends == ["submit"]


def test_tools_are_offered_in_the_order_asked_for_in_openai_function_form() -> None:
    offered = [spec.function() for spec in toolbox(["submit", "bash"]).specs]

    assert offered[1] == {
        "type": "function",
        "function": {
            "name": "bash",
            "description": offered[1]["function"]["description"],  # type: ignore[index]
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {
                        "type": "string",
                        "description": "The script; may have several lines.",
                    }
                },
                "required": ["command"],
            },
        },
    }
    assert offered[0]["function"]["name"] == "submit"  # type: ignore[index]


def test_a_tool_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as raised:
        toolbox(["bash", "python"])
    assert raised.value.fix == "choose from bash, str_replace_editor, submit"
