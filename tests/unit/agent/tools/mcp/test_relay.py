"""The pipes of a program in the sandbox, with the shells and tools that images have."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swe_rollout.agent.tools.mcp.relay import Relay, RelayError, RelayTimeoutError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult
from swe_rollout.testing.extensions.tools import MemorySandbox

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]


@dataclass
class ShellSandbox(MemorySandbox):
    """Runs commands on this machine, by one shell and what is on one PATH."""

    shell: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

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
        del cwd
        words = [*self.shell, *command[1:]]
        environment = {**self.env, **(env or {})}
        return await asyncio.to_thread(_run, words, environment, stdin, timeout_s, max_output)


def _run(
    words: list[str], env: dict[str, str], stdin: bytes, timeout_s: float, max_output: int
) -> ExecResult:
    with subprocess.Popen(
        words,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return ExecResult(137, b"", b"", timed_out=True)
        return ExecResult(process.returncode, out[:max_output], err, stdout_bytes=len(out))


def pipes(folder: Path, name: str = "") -> list[Path]:
    return list(folder.glob(f"swe-rollout-mcp-*/{name}"))


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ShellSandbox]:
    found = shutil.which(request.param)
    assert found is not None
    env = {"TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [found]
    if request.param == "busybox":
        # Nothing else is on the PATH: an image may have no other tools.
        applets = tmp_path / "bin"
        applets.mkdir()
        subprocess.run([found, "--install", "-s", str(applets)], check=True)
        env["PATH"], command = str(applets), [str(applets / "sh")]
    yield ShellSandbox({}, shell=command, env=env)
    subprocess.run(["pkill", "-9", "-f", str(tmp_path)], check=False)


async def test_a_program_stays_between_two_exchanges(shell: ShellSandbox, tmp_path: Path) -> None:
    relay = await Relay.start(shell, ["cat"], env={}, timeout_s=10)

    for text in (b"one\n", b"two\nthree\n", b"\xff\0 half a line"):
        assert await relay.exchange(shell, text, first=True, timeout_s=10) == text
    await relay.stop(shell)

    assert not pipes(tmp_path)
    with pytest.raises(RelayError):
        await relay.exchange(shell, b"gone\n", first=True, timeout_s=10)


async def test_the_command_is_a_list_of_arguments_and_no_script(shell: ShellSandbox) -> None:
    words = ["printf", "%s|", "$HOME", "a b", "--", "'", ";", ""]
    relay = await Relay.start(shell, words, env={}, timeout_s=10)

    found = b""
    while b"@exit" not in found:
        found += await relay.exchange(shell, b"", first=False, timeout_s=10)

    assert found.startswith(b"$HOME|a b|--|'|;||\n@exit 0\n")
    await relay.stop(shell)


async def test_the_end_of_a_program_is_told_with_its_code_and_stderr(shell: ShellSandbox) -> None:
    script = "read -r line; echo $line; echo why >&2; exit 5"
    relay = await Relay.start(shell, ["sh", "-c", script], env={}, timeout_s=10)

    data = await relay.exchange(shell, b"last\n", first=True, timeout_s=10)
    while b"@exit" not in data:
        data += await relay.exchange(shell, b"", first=False, timeout_s=10)

    assert data == b"last\n\n@exit 5\n"
    with pytest.raises(RelayError):
        await relay.exchange(shell, b"again\n", first=True, timeout_s=10)
    assert await relay.stop(shell) == b"why\n"


async def test_a_program_that_is_not_there_says_so(shell: ShellSandbox) -> None:
    relay = await Relay.start(shell, ["no-such-program"], env={}, timeout_s=10)

    async def exchange_until_it_fails() -> None:
        while True:
            await relay.exchange(shell, b"x\n", first=True, timeout_s=10)

    with pytest.raises(RelayError):
        await exchange_until_it_fails()
    assert b"not found" in await relay.stop(shell)


async def test_a_flood_is_held_up_by_the_pipe_and_stderr_is_bounded(
    shell: ShellSandbox, tmp_path: Path
) -> None:
    script = "i=0; while [ $i -lt 5000 ]; do echo errorerrorerrorerror >&2; i=$((i+1)); done; yes"
    relay = await Relay.start(shell, ["sh", "-c", script], env={}, timeout_s=10)

    found = await relay.exchange(shell, b"", first=True, timeout_s=20)

    assert found.startswith(b"y\ny\n")
    assert 0 < sum(path.stat().st_size for path in pipes(tmp_path, "err")) <= 1 << 14
    await relay.stop(shell)


async def test_a_silent_program_costs_its_time(shell: ShellSandbox) -> None:
    relay = await Relay.start(shell, ["sleep", "600"], env={}, timeout_s=10)

    with pytest.raises(RelayTimeoutError):
        await relay.exchange(shell, b"x\n", first=True, timeout_s=0.5)
    with pytest.raises(RelayTimeoutError):
        await relay.exchange(shell, b"x" * 300_000, first=True, timeout_s=0.5)
    await relay.stop(shell)


async def test_pipes_are_ignored_by_git(shell: ShellSandbox, tmp_path: Path) -> None:
    relay = await Relay.start(shell, ["cat"], env={}, timeout_s=10)

    (ignored,) = pipes(tmp_path, ".gitignore")

    assert ignored.read_text() == "*\n"
    await relay.stop(shell)
