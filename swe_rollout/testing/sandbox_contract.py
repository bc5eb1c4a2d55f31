"""The contract of every sandbox as tests: subclass `SandboxContract` and override `sandbox`.

    class TestMySandbox(SandboxContract):
        @pytest.fixture
        async def sandbox(self):
            sandbox = await my_provider.start(...)
            yield sandbox
            await sandbox.close()

Needs pytest with pytest-asyncio in auto mode. The image needs a POSIX shell and the tools of
busybox; class attributes declare its other features.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from typing import ClassVar

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.testing.sandbox_file_contract import FileContract

_MIB = 1 << 20
_KILLED = 137
_QUICK_S = 8.0
"""Seconds: far less than a stream is held open, far more than a busy machine needs."""
_OUTPUTS = (
    ("true", b"", b""),
    (r"printf 'a\000b\303'; printf '\251\377\r\n'", b"a\0b\xc3\xa9\xff\r\n", b""),
    (r"printf '\r\n\n\r'; printf 'no end' >&2", b"\r\n\n\r", b"no end"),
    ("cat; echo end", b"end\n", b""),
    (
        "cat <<'END'\n\ttab  'q' \"d\" \\ $x `y`\né漢\nEND",
        "\ttab  'q' \"d\" \\ $x `y`\né漢\n".encode(),
        b"",
    ),
)
"""Scripts, and their output on both streams."""


class SandboxContract(FileContract):
    """The contract of `Sandbox`. Override the fixture `sandbox`."""

    has_bash: ClassVar[bool] = False
    """Whether the image has bash."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        """A fresh sandbox."""
        raise NotImplementedError("override the fixture `sandbox`")

    # --- inputs and results of a command ---------------------------------------------------------

    async def test_exit_codes_come_back_as_they_are(self, sandbox: Sandbox) -> None:
        for code in (0, 1, 2, 42, 124, 126, 127, 255):
            result = await sandbox.exec(f"exit {code}")
            assert (result.exit_code, result.timed_out) == (code, False)

    async def test_stdout_and_stderr_are_apart(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
        assert (result.stdout_bytes, result.stderr_bytes) == (4, 4)
        assert result.ok
        assert not result.truncated

    async def test_output_is_exact(self, sandbox: Sandbox) -> None:
        for script, out, err in _OUTPUTS:
            result = await sandbox.exec(script)
            assert (result.stdout, result.stderr, result.exit_code) == (out, err, 0)

    async def test_stdin_is_exact(self, sandbox: Sandbox) -> None:
        data = os.urandom(5_000_000)
        result = await sandbox.exec("sha256sum", stdin=data)
        assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()

    async def test_a_command_that_reads_everything_leaves_the_next_alone(
        self, sandbox: Sandbox
    ) -> None:
        results = await asyncio.gather(
            sandbox.exec("cat >/dev/null; sleep 0.2; cat; echo one"),
            sandbox.exec("read line; echo two"),
            sandbox.exec("cat", stdin=b"three\n"),
        )
        assert [result.stdout for result in results] == [b"one\n", b"two\n", b"three\n"]

    async def test_cwd_is_per_command_and_may_be_relative(self, sandbox: Sandbox) -> None:
        await sandbox.exec(["mkdir", "-p", "sub dir/it's"])
        absolute = f"{sandbox.workdir}/sub dir"
        assert (await sandbox.exec("pwd", cwd=absolute)).stdout.decode() == absolute + "\n"
        relative = await sandbox.exec("pwd", cwd="sub dir/it's")
        assert relative.stdout.decode() == f"{absolute}/it's\n"
        assert (await sandbox.exec("pwd")).stdout.decode() == sandbox.workdir + "\n"

    async def test_a_missing_cwd_is_a_result(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("echo ran", cwd="/no/such/folder")
        assert result.exit_code in (126, 127)
        assert result.stdout == b""
        assert b"/no/such/folder" in result.stderr
        assert (await sandbox.exec("echo next")).stdout == b"next\n"

    async def test_env_is_exact_and_per_command(self, sandbox: Sandbox) -> None:
        value = 'it\'s "q" $HOME `id` \\ é\n two '
        result = await sandbox.exec('printf %s "$SWE_VALUE"', env={"SWE_VALUE": value})
        assert result.stdout.decode() == value
        assert (await sandbox.exec('printf %s "$SWE_VALUE"')).stdout == b""

    async def test_env_takes_names_a_shell_can_not_export(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(["env"], env={"a.b-c": "1", "UID": "77"})
        assert {b"a.b-c=1", b"UID=77"} <= set(result.stdout.split(b"\n"))

    async def test_arguments_are_exact(self, sandbox: Sandbox) -> None:
        arguments = ["a b", "", "it's", '"', "$HOME", "`id`", "x\ny\n", "é漢", "-n", "\\", "*", "~"]
        result = await sandbox.exec(["printf", r"%s\0", *arguments])
        assert result.stdout.decode().split("\0")[:-1] == arguments

    async def test_a_program_that_is_not_there_is_127(self, sandbox: Sandbox) -> None:
        for command in ("no-such-program", ["no-such-program"]):
            result = await sandbox.exec(command)
            assert result.exit_code == 127
            assert b"no-such-program" in result.stderr

    async def test_a_program_that_can_not_run_is_126(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("plain", b"text", mode=0o644)
        assert (await sandbox.exec([f"{sandbox.workdir}/plain"])).exit_code == 126

    async def test_scripts_may_be_large(self, sandbox: Sandbox) -> None:
        text = "0123456789abcde\n" * 12800
        result = await sandbox.exec(f"wc -c <<'END'\n{text}END\n")
        assert result.stdout.strip() == str(len(text)).encode()

    async def test_text_that_is_no_utf8_is_no_error(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("printf %s '\ud83d \udcff'")
        assert result.ok

    async def test_scripts_run_in_bash(self, sandbox: Sandbox) -> None:
        if not self.has_bash:
            pytest.skip("the image has no bash, and does not need it")
        result = await sandbox.exec('x=(a b); [[ ${x[1]} == b ]] && echo "${BASH_VERSION%%.*}"')
        assert int(result.stdout) >= 3

    # --- limits of output ------------------------------------------------------------------------

    async def test_large_output_is_cut_and_counted(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("printf begin; head -c 20000000 /dev/zero; echo x >&2; exit 5")
        assert result.stdout == b"begin" + bytes(_MIB - 5)
        assert (result.stdout_bytes, result.stderr) == (20_000_005, b"x\n")
        assert result.truncated
        assert result.exit_code == 5

    async def test_the_cap_is_exact(self, sandbox: Sandbox) -> None:
        for cap, kept in ((10, b"0123456789"), (9, b"012345678"), (1, b"0")):
            result = await sandbox.exec("printf 0123456789 >&2", max_output=cap)
            assert (result.stderr, result.stderr_bytes) == (kept, 10)
            assert result.truncated == (cap < 10)

    async def test_a_runaway_writer_is_bounded(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("yes", timeout_s=0.5, max_output=1000)
        assert result.timed_out
        assert result.stdout == b"y\n" * 500
        assert result.stdout_bytes > 1000

    # --- time limits -----------------------------------------------------------------------------

    async def test_a_timeout_kills_the_whole_group(self, sandbox: Sandbox) -> None:
        script = "(while :; do echo x >>beat; sleep 0.05; done) & echo begun; sleep 60"
        result = await sandbox.exec(script, timeout_s=0.6)
        assert result.timed_out
        assert result.exit_code in (137, 143)
        assert result.stdout == b"begun\n"
        assert 0.6 <= result.duration_s < _QUICK_S
        before = await sandbox.read_file("beat")
        await asyncio.sleep(0.4)
        assert (await sandbox.exec("cat beat; echo next")).stdout == before + b"next\n"

    async def test_a_timeout_kills_a_command_that_ignores_term(self, sandbox: Sandbox) -> None:
        script = "trap '' TERM; while :; do echo x >>beat; sleep 0.05; done"
        result = await sandbox.exec(script, timeout_s=0.3)
        assert (result.timed_out, result.exit_code) == (True, 137)
        before = await sandbox.read_file("beat")
        await asyncio.sleep(0.3)
        assert await sandbox.read_file("beat") == before

    async def test_a_command_that_catches_term_is_still_late(self, sandbox: Sandbox) -> None:
        script = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"
        result = await sandbox.exec(script, timeout_s=0.3)
        assert result.timed_out
        assert not result.ok
        assert result.stdout == b"bye\n"

    async def test_signals_are_128_plus_n(self, sandbox: Sandbox) -> None:
        for signal, code in (("TERM", 143), ("KILL", 137), ("HUP", 129), ("INT", 130)):
            result = await sandbox.exec(f"kill -{signal} $$; sleep 5")
            assert (result.exit_code, result.timed_out) == (code, False)
            assert result.stderr == b""

    async def test_ending_processes_leaves_none_that_could_change_a_file(
        self, sandbox: Sandbox
    ) -> None:
        loop = "while :; do echo x >>grows; done"
        running = asyncio.create_task(sandbox.exec(f"{loop} & {loop}", timeout_s=60))
        await sandbox.exec("until [ -s grows ]; do sleep 0.05; done")
        await sandbox.end_processes()
        before = await sandbox.exec("wc -c <grows")
        await asyncio.sleep(0.2)
        assert (await sandbox.exec("wc -c <grows")).stdout == before.stdout
        assert (await running).exit_code == _KILLED

    async def test_background_children_do_not_delay_the_result(self, sandbox: Sandbox) -> None:
        for children in ("sleep 30 & (sleep 31; echo late) &", "setsid sleep 30 &"):
            started = time.monotonic()
            result = await sandbox.exec(f"{children} echo now; exit 7")
            assert time.monotonic() - started < _QUICK_S
            assert (result.stdout, result.exit_code) == (b"now\n", 7)

    async def test_a_background_child_lives_on_and_its_output_is_dropped(
        self, sandbox: Sandbox
    ) -> None:
        script = "(sleep 0.5; echo late; echo late >&2; touch done; sleep 30) & echo now"
        assert (await sandbox.exec(script)).stdout == b"now\n"
        waiting = "n=0; until [ -e done ] || [ $n = 80 ]; do sleep 0.1; n=$((n + 1)); done; ls done"
        assert (await sandbox.exec(waiting)).stdout == b"done\n"

    async def test_cancelling_kills_the_command(self, sandbox: Sandbox) -> None:
        script = "while :; do echo x >>beat; sleep 0.05; done"
        task = asyncio.create_task(sandbox.exec(script))
        await _until_there(sandbox, "beat")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _until_still(sandbox, "beat")

    # --- concurrency, and the end ----------------------------------------------------------------

    async def test_results_find_their_callers(self, sandbox: Sandbox) -> None:
        async def one(number: int) -> bool:
            script = f"sleep 0.{number % 4}; cat; head -c {number * 1000} /dev/zero; exit {number}"
            result = await sandbox.exec(script, stdin=f"<{number}>".encode())
            expected = f"<{number}>".encode() + bytes(number * 1000)
            return result.stdout == expected and result.exit_code == number

        assert await asyncio.gather(*map(one, range(16))) == [True] * 16

    async def test_nothing_of_the_protocol_reaches_a_command(self, sandbox: Sandbox) -> None:
        # A command with access to the stream could write its own frames.
        script = "for n in 3 4 5 6 7 8 9; do (echo forged >&$n) 2>/dev/null && echo open $n; done"
        result = await sandbox.exec(script + "; cat")
        assert result.stdout == b""

    async def test_closing_twice_is_fine(self, sandbox: Sandbox) -> None:
        await sandbox.close()
        await sandbox.close()

    async def test_a_closed_sandbox_is_an_error(self, sandbox: Sandbox) -> None:
        await sandbox.close()
        with pytest.raises(SandboxError) as caught:
            await sandbox.exec("true")
        assert caught.value.fix

    async def test_closing_ends_what_still_runs(self, sandbox: Sandbox) -> None:
        task = asyncio.create_task(sandbox.exec("echo x >begun; sleep 60"))
        await _until_there(sandbox, "begun")
        started = time.monotonic()
        await sandbox.close()
        with pytest.raises(SandboxError):
            await task
        assert time.monotonic() - started < _QUICK_S


async def _until_there(sandbox: Sandbox, path: str) -> None:
    script = f"n=0; until [ -s {path} ] || [ $n = 80 ]; do sleep 0.1; n=$((n + 1)); done; ls {path}"
    assert (await sandbox.exec(script)).ok


async def _until_still(sandbox: Sandbox, path: str) -> None:
    """Wait until a file has stopped growing; the machine may be busy."""
    before = b""
    async with asyncio.timeout(_QUICK_S):
        while (now := await sandbox.read_file(path)) != before:
            before = now
            await asyncio.sleep(0.5)
