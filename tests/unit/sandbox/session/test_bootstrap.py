"""The scripts and programs that are sent into a sandbox: syntax, size, machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.script import read_script
from swe_rollout.sandbox.session import bootstrap

SHELLCHECK = Path(sys.executable).with_name("shellcheck")


def test_shellcheck_finds_nothing_in_the_scripts_that_are_sent(tmp_path: Path) -> None:
    idle = bootstrap.idle_command()[2]
    install = bootstrap.install_command()[2]
    look = read_script("isolation")
    for number, text in enumerate((idle, install, look)):
        (script := tmp_path / f"{number}.sh").write_text("# shellcheck shell=sh\n" + text, "utf-8")
        # `sleeper` is set when the trap runs, and `take` is called by the loop.
        checked = subprocess.run(
            [SHELLCHECK, "--exclude=SC2093,SC2329,SC2015,SC2154,SC2034,SC2016,SC2094", script],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.stdout == ""


@pytest.mark.parametrize(
    ("machine", "number"), [("x86_64", 62), ("amd64", 62), ("aarch64", 183), ("arm64", 183)]
)
def test_each_machine_has_a_small_static_program(machine: str, number: int) -> None:
    program = bootstrap.program(machine)
    assert program[:4] == b"\x7fELF"
    assert int.from_bytes(program[18:20], "little") == number
    assert len(program) < 120_000
    assert b"ld-linux" not in program


def test_another_machine_is_named() -> None:
    with pytest.raises(SandboxError) as caught:
        bootstrap.program("riscv64")
    assert "riscv64" in caught.value.why
    assert "aarch64" in caught.value.why
