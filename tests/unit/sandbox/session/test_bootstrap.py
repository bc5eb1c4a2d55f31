"""The scripts and programs that are sent into a sandbox: syntax, size, machines."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.script import read_script
from swe_rollout.sandbox.session import bootstrap

SHELLCHECK = Path(sys.executable).with_name("shellcheck")


def test_shellcheck_finds_nothing_in_the_scripts_that_are_sent(tmp_path: Path) -> None:
    idle = bootstrap.idle_command(beside=True)[2]
    install = bootstrap.install_command()[2]
    scripts = (idle, install, read_script("isolation"), read_script("clear_shared"))
    for number, text in enumerate(scripts):
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


def test_a_container_beside_another_ends_when_no_supervisor_is_left(tmp_path: Path) -> None:
    (tmp_path / "sleep").write_text(f"#!/bin/sh\necho over >>{tmp_path}/pauses\n", "utf-8")
    (tmp_path / "sleep").chmod(0o700)
    name = f"test-{secrets.token_hex(8)}"
    script = read_script("idle", folders="/nowhere", orphan=1, socket=name, pause=60)
    path = f"{tmp_path}:{os.environ['PATH']}"
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(f"\0{name}")
        idle = subprocess.Popen(["/bin/sh", "-c", script], env={"PATH": path})
        while idle.poll() is None and pauses(tmp_path) < 4:
            time.sleep(0.01)
        assert idle.poll() is None
    assert idle.wait(60) == 0


def pauses(folder: Path) -> int:
    noted = folder / "pauses"
    return noted.read_text("utf-8").count("over") if noted.exists() else 0
