"""Exit codes hold, whatever is in flight when a command ends and wherever its output goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_rollout.spec.template import template
from unit.store.storage_server import CREDENTIALS, Memory, Storage, storage
from waits import block_until

COMMAND = [sys.executable, "-m", "swe_rollout.cli.main"]
FULL = Path("/dev/full")
ENDS_S = 20
"""Far below the time limit of a request, so that no command waits for one."""

IN_FLIGHT = """
import asyncio, sys
from swe_rollout.cli import main, status
from swe_rollout.errors import *
from swe_rollout.store import bucket as calls

async def read_state(*_):
    bucket = calls.Bucket.open("s3://bucket")
    tasks.extend(asyncio.create_task(bucket.create(str(n), b"x" * 1000)) for n in range(40))
    while len(calls._in_flight) < 40:
        await asyncio.sleep(0.01)
    print("in flight", file=sys.stderr, flush=True)
    END

tasks = []
main._LAST_CALLS_S = 0.2
status._read_state = read_state
sys.argv = ["swe-rollout", "status", "s3://bucket/demo"]
main.main()
"""
"""`status`, with other reads."""


@pytest.fixture(scope="module")
def silent() -> Iterator[Storage]:
    with storage(Memory(), delay_s=120) as server:
        yield server


@pytest.fixture
def hanging(silent: Storage) -> dict[str, str]:
    """The environment of a process whose store never responds."""
    return {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": silent.url}


@pytest.mark.threat(point=17)
@pytest.mark.parametrize(
    ("end", "signals", "code"),
    [
        ("raise UnreachableError('x')", (), 4),
        ("raise RuntimeError('a bug')", (), 1),
        ("sys.exit(7)", (), 7),
        *(
            ("await asyncio.sleep(60)", signals, 130)
            for signals in ((signal.SIGINT,), (signal.SIGINT,) * 2, (signal.SIGTERM,) * 2)
        ),
    ],
)
def test_whatever_ends_a_command_with_store_calls_in_flight_it_keeps_its_code(
    end: str, signals: tuple[signal.Signals, ...], code: int, hanging: dict[str, str]
) -> None:
    script = IN_FLIGHT.replace("END", end)
    with subprocess.Popen(
        [sys.executable, "-c", script], env=hanging, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "in flight\n"
        for each in signals:
            process.send_signal(each)
        _, said = process.communicate(timeout=ENDS_S)
    assert process.returncode == code, said
    assert "Fatal" not in said
    assert "Traceback" not in said
    assert ("RuntimeError: a bug" in said) is ("a bug" in end)


@pytest.mark.threat(point=17)
def test_a_signal_while_a_job_waits_for_its_store_is_130(
    silent: Storage, hanging: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(template())
    before = len(silent.requests)
    with subprocess.Popen(
        [*COMMAND, "run", "job.yaml", "--store", "s3://bucket/runs", "--display", "plain"],
        env=hanging,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        block_until(lambda: len(silent.requests) > before or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=ENDS_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said


VERBS = (
    ["--help"],
    ["explain", "spec"],
    ["datasets", "rows", "release-pairs"],
)


@pytest.mark.threat(point=22)
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_reader_that_has_gone_ends_a_command_quietly_as_sigpipe_does(
    arguments: list[str],
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == -signal.SIGPIPE
    assert done.stderr == ""


@pytest.mark.threat(point=22)
def test_a_reader_of_both_streams_that_has_gone_ends_a_command_too() -> None:
    shell = f"set -o pipefail; {' '.join(COMMAND)} datasets rows release-pairs 2>&1 | head -c 10"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == ""
    assert len(done.stdout) == 10


@pytest.mark.threat(point=22)
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full, as Linux has it")
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_full_disk_is_an_error_of_one_line_and_1(arguments: list[str]) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the output can't be written\n  why   No space left")
    assert "Traceback" not in done.stderr


@pytest.mark.threat(point=22)
def test_closed_streams_are_no_bug() -> None:
    shell = f"{' '.join(COMMAND)} explain spec >&- 2>&-"
    assert subprocess.run(["bash", "-c", shell], check=False).returncode == 0
