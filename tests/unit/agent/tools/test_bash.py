"""The `bash` and `submit` tools in a real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, Sandbox
from swe_rollout.types.turn import CallStatus, Observation, ToolCall
from unit.agent.tools.conftest import started

TOOLS = toolbox(["bash", "str_replace_editor", "submit"])


pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_bash_shows_streams_apart_with_the_exit_code(sandbox: Sandbox) -> None:
    seen = await bash(
        sandbox, "echo out; cd / && X=1; for i in 1 2; do echo $i; done; echo e >&2; exit 3"
    )

    assert seen.text == "exit code: 3\nstdout:\nout\n1\n2\nstderr:\ne"
    assert (seen.exit_code, seen.timed_out, seen.truncated) == (3, False, False)


async def test_bash_says_when_there_was_no_output(sandbox: Sandbox) -> None:
    assert (await bash(sandbox, "true")).text == "exit code: 0 (no output)"


async def test_bash_tells_a_timeout_and_for_how_long_the_command_ran(
    sandbox: Sandbox,
) -> None:
    seen = await bash(sandbox, "exec sleep 600", timeout_s=0.3)

    assert seen.timed_out
    assert "killed after 0.3 s" in seen.text
    assert 0.2 < seen.duration_s < 300


async def test_bash_shows_bytes_that_are_no_text_and_keeps_colours(sandbox: Sandbox) -> None:
    seen = await bash(sandbox, r"printf 'a\000b\377c \033[31mred'")

    assert seen.text == "exit code: 0\nstdout:\na\\x00b�c \x1b[31mred"


@pytest.mark.parametrize("limit", [256, 1000, 16384])
async def test_bash_output_is_cut_in_the_middle_within_the_limit(
    sandbox: Sandbox, limit: int
) -> None:
    seen = await bash(
        sandbox, "seq 1 50000; echo last; seq 1 9000 >&2; echo late >&2", output_bytes=limit
    )

    assert seen.truncated
    assert len(seen.text.encode()) <= limit
    assert seen.text.startswith("exit code: 0\nstdout:\n1\n")
    assert "bytes omitted ...]" in seen.text
    assert seen.text.endswith("late")


async def test_a_short_stream_leaves_its_room_to_the_other(sandbox: Sandbox) -> None:
    seen = await bash(sandbox, "seq 1 400; echo problem >&2", output_bytes=2000)

    assert not seen.truncated
    assert seen.text.endswith("400\nstderr:\nproblem")


async def test_bash_says_how_much_the_sandbox_did_not_keep(sandbox: Sandbox) -> None:
    seen = await bash(sandbox, "head -c 3000000 /dev/zero | tr '\\0' x")

    assert seen.truncated
    assert f"[... {3_000_000 - MAX_OUTPUT_BYTES} more bytes were not kept ...]" in seen.text


async def test_a_nul_in_a_command_is_refused_before_any_shell_sees_it(
    sandbox: Sandbox,
) -> None:
    assert (await bash(sandbox, "ls\0")).text == "error: a command can't hold a NUL character"


async def test_a_command_in_a_lost_sandbox_is_never_an_observation(tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        await sandbox.close()

        with pytest.raises(SandboxError):
            await bash(sandbox, "true")


async def test_submit_answers_and_ends_the_episode(sandbox: Sandbox) -> None:
    assert (await call(sandbox, "submit", {})).text == "The work is handed in."
    ends = [
        name
        for name in ("bash", "str_replace_editor", "submit")
        if TOOLS.ends_episode(ToolCall(CallStatus.OK, "", name))
    ]
    assert ends == ["submit"]
