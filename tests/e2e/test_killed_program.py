"""A program that streams groups or plays single episodes is killed: what it had done stays done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from e2e.killed_program import TURNS
from waits import block_until


@pytest.mark.parametrize("how", ["stream", "session"])
def test_a_killed_program_goes_on_at_the_last_turn(how: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "e2e.killed_program", how, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    killed = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    block_until(lambda: chunks(tmp_path) >= 6 or killed.poll() is not None, within_s=200)
    killed.kill()
    killed.wait()
    assert chunks(tmp_path) >= 6

    again = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=True
    )

    found = [json.loads(line) for line in again.stdout.splitlines() if line.startswith("{")]
    assert [each["episode"][-1] for each in found] == ["0", "1"]
    assert [each["turns"] for each in found] == [list(range(TURNS))] * 2
    assert sum(each["resumed"] for each in found) >= 1
    assert chunks(tmp_path) == 0, "what is committed needs no journal"
    thrice = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=True
    )
    assert [line for line in thrice.stdout.splitlines() if line.startswith("{")] == [
        line for line in again.stdout.splitlines() if line.startswith("{")
    ]


def chunks(folder: Path) -> int:
    """The number of turns in journals."""
    return sum(path.is_file() for path in (folder / "runs" / "demo" / "journals").rglob("*"))
