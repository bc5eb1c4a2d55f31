"""The shell under each of its faces, in a real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.shell import program_observation
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox
from swe_rollout.types.turn import Observation
from unit.agent.tools.conftest import files, folder_of, said, started, use, used

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCRIPT = "cd / && pwd; VAR=1 sh -c 'echo $VAR'; for i in 1 2; do echo $i; done; echo e >&2; exit 3"
OUT, ERR = "\n/\n1\n1\n2", "\ne"


async def bash(
    sandbox: Sandbox, command: str, *, timeout_s: float = 20.0, output_bytes: int = 16384
) -> Observation:
    call = {"command": command}
    return await use(sandbox, "bash", call, timeout_s=timeout_s, output_bytes=output_bytes)


@pytest.mark.parametrize(
    ("tool", "argument", "text"),
    [
        ("bash", "command", f"stdout:{OUT}\nstderr:{ERR}"),
        ("bash_executor", "command", f"stdout:{OUT}\nstderr:{ERR}"),
        ("execute_bash", "command", f"stdout:{OUT}\nstderr:{ERR}"),
        ("run_tests", "test_command", f"stdout:{OUT}\nstderr:{ERR}"),
        ("Bash", "command", f"stdout:{OUT}\nstderr:{ERR}"),
        ("r2e_bash_executor", "cmd", f"[STDOUT]{OUT}\n[STDERR]{ERR}"),
        ("r2e_bash_executor", "command", f"[STDOUT]{OUT}\n[STDERR]{ERR}"),
    ],
)
async def test_a_command_is_a_script_with_streams_apart_and_its_exit_code_wt1(
    sandbox: Sandbox, tool: str, argument: str, text: str
) -> None:
    seen = await use(sandbox, tool, {argument: SCRIPT})

    assert seen.text == f"exit code: 3\n{text}"
    assert (seen.exit_code, seen.timed_out, seen.truncated) == (3, False, False)
    assert await said(sandbox, tool, **{argument: "ls\0"}) == (
        "error: a command can't hold a NUL character"
    )


@pytest.mark.parametrize(
    ("tool", "folder"),
    [
        ("bash_executor", "working_directory"),
        ("execute_bash", "working_dir"),
        ("Bash", "working_directory"),
        ("k8s_bash", "working_directory"),
    ],
)
async def test_a_script_starts_in_its_folder_l2_l12(
    sandbox: Sandbox, tool: str, folder: str
) -> None:
    files(sandbox, {"a'b/f": b"x"})

    seen = await use(sandbox, tool, {"command": "pwd; ls", folder: "a'b"})
    assert seen.text == f"exit code: 0\nstdout:\n{folder_of(sandbox)}/a'b\nf"
    assert "/usr" in await said(sandbox, tool, command="pwd", **{folder: "/usr"})
    missing = await use(sandbox, tool, {"command": "pwd", folder: "gone"})
    assert missing.exit_code in (126, 127) or missing.text.endswith("gone is not a folder")


async def test_a_file_of_tests_is_one_argument(sandbox: Sandbox) -> None:
    command = {"test_command": "false || printf '%s\\n'", "test_file": "$(id) 'x'"}
    assert await said(sandbox, "run_tests", **command) == "exit code: 0\nstdout:\n$(id) 'x'"


@pytest.mark.parametrize(
    ("tool", "limit", "timeout_s", "shown"),
    [
        (used("bash"), {}, 0.3, "0.3"),
        (used("bash_executor"), {"timeout": 0.2}, 20, "0.2"),
        (used("bash_executor"), {"timeout": 10_000}, 0.3, "0.3"),
        (used("BashExecutor", timeout=0.4), {}, 20, "0.4"),
        (used("Bash"), {"timeout": 300}, 20, "0.3"),
        (used("Bash"), {"timeout": 10**9}, 0.3, "0.3"),
        (used("k8s_bash"), {"timeout_ms": 300}, 20, "0.3"),
    ],
)
async def test_the_policy_s_time_is_bounded_by_the_job_s(
    sandbox: Sandbox, tool: str, limit: dict[str, object], timeout_s: float, shown: str
) -> None:
    call = {"command": "echo begun; exec sleep 600", **limit}
    seen = await use(sandbox, tool, call, timeout_s=timeout_s)

    assert seen.timed_out
    assert seen.text.startswith(f"killed after {shown} s")
    assert "begun" in seen.text


async def test_what_is_no_command_of_a_face_is_refused(sandbox: Sandbox) -> None:
    assert await said(sandbox, "r2e_bash_executor") == "error: give one command, as cmd"
    two = await said(sandbox, "r2e_bash_executor", cmd="a", command="b")
    assert two == "error: give one command, as cmd"
    assert "timeout must be" in await said(sandbox, "Bash", command="true", timeout=0)


async def test_output_can_be_left_out(sandbox: Sandbox) -> None:
    call = {"command": "echo a; exit 2", "capture_output": False}
    seen = await use(sandbox, "bash_executor", call)
    assert (seen.text, seen.exit_code) == ("exit code: 2", 2)


@pytest.mark.parametrize("tool", ["bash", "bash_executor", "Bash", "k8s_bash"])
async def test_a_job_can_deny_commands_by_name_and_by_pattern_t8_l12(
    sandbox: Sandbox, tool: str
) -> None:
    rules = used(tool, deny=["curl"], deny_patterns=[r"pip\s+install"])

    for command in ("ls; curl x", "python -m pip  install x"):
        assert "is not to be used in this task" in await said(sandbox, rules, command=command)
    assert (await said(sandbox, rules, command="echo curl")).endswith("curl")


async def test_r2e_denies_git_unless_the_job_allows_it_wt10(sandbox: Sandbox) -> None:
    assert await said(sandbox, "r2e_bash_executor", cmd="true; git --version") == (
        "error: git is not to be used in this task; nothing was run"
    )
    allowed = used("R2EBashExecutor", deny=[])
    assert "git version" in await said(sandbox, allowed, cmd="git --version")


async def test_bytes_that_are_no_text_are_shown_and_colours_kept(sandbox: Sandbox) -> None:
    seen = await bash(sandbox, r"printf 'a\000b\377c \033[31mred'")
    assert seen.text == "exit code: 0\nstdout:\na\\x00b�c \x1b[31mred"


@pytest.mark.parametrize("limit", [256, 1000, 16384])
async def test_output_is_cut_in_the_middle_within_the_limit(sandbox: Sandbox, limit: int) -> None:
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


async def test_how_much_the_sandbox_did_not_keep_is_told(sandbox: Sandbox) -> None:
    seen = await bash(sandbox, "head -c 3000000 /dev/zero | tr '\\0' x")

    assert seen.truncated
    assert f"[... {3_000_000 - MAX_OUTPUT_BYTES} more bytes were not kept ...]" in seen.text


async def test_a_command_in_a_lost_sandbox_is_never_an_observation(tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        await sandbox.close()

        with pytest.raises(SandboxError):
            await bash(sandbox, "true")


async def test_wa1_nothing_of_an_outcome_is_lost() -> None:
    context = ToolContext(2.0, 1024)

    silent = program_observation(ExecResult(0, b"", b""), context)
    late = program_observation(ExecResult(137, b"", b"x", timed_out=True), context)

    assert silent.text == "exit code: 0 (no output)"
    assert late.timed_out
    assert late.text == "killed after 2 s: the time for one command was over\nstderr:\nx"


@given(st.binary(max_size=3000), st.binary(max_size=3000), st.integers(0, 9), st.integers(1, 2000))
async def test_it_fits_whatever_the_program_wrote(
    out: bytes, err: bytes, lost: int, room: int
) -> None:
    result = ExecResult(1, out, err, stdout_bytes=len(out) + lost, stderr_bytes=len(err))

    seen = program_observation(result, ToolContext(1.0, room))

    assert len(seen.text.encode()) <= room
    assert "\0" not in seen.text
    assert seen.truncated or not lost
