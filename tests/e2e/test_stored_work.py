"""Work on stored episodes: replay, regrade, exports, statistics; and single sandboxes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.command import COMMAND, ROOT, Job, job_writer, printed_json, swe_rollout
from e2e.records import committed
from swe_rollout.datasets.release_pair_recipes import load_pairs
from waits import block_until

SCENARIOS = ("gold", "wrong", "malformed", "loop")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that was run; no test may change it, and none does."""
    folder = tmp_path_factory.mktemp("demo")
    write: Callable[..., Job] = job_writer(folder, store=f"file://{folder}/store")
    job = write(scenarios=SCENARIOS)
    swe_rollout("run", str(job.path))
    before = {path: path.read_bytes() for path in committed(job.folder)}
    yield job
    assert {path: path.read_bytes() for path in committed(job.folder)} == before
    assert len(before) == 4


def test_episodes_replay_as_recorded(demo: Job) -> None:
    found = printed_json(swe_rollout("replay", demo.uri, "-o", "json"))
    assert len(found["episodes"]) == 4
    for each in found["episodes"]:
        assert each["same"], each
        assert each["calls"] > 0


@pytest.mark.slow
def test_stored_patches_are_graded_again_and_stay_as_they_are(demo: Job, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    found = printed_json(
        swe_rollout("regrade", demo.uri, "-k", "2", "-o", "json", "-O", str(report))
    )
    assert json.loads(report.read_text()) == found
    assert found["complete"] is True
    assert (found["graded"], found["changed"], found["flaky_tests"]) == (4, 0, [])
    for each in found["episodes"]:
        assert each["verdicts"] == [each["recorded"]] * 2


@pytest.mark.slow
def test_an_interrupted_regrade_reports_what_it_graded(demo: Job, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["regrade", demo.uri, "-k", "2", "--parallelism", "1", "-O", str(report)]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not (line := process.stderr.readline()).endswith(": same\n"):
        assert line, process.poll()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    found = json.loads(report.read_text())
    assert found["complete"] is False
    assert 1 <= found["graded"] < 4


@pytest.mark.usefixtures("demo")
def test_a_command_runs_in_a_sandbox_of_its_own() -> None:
    image = _image()
    done = swe_rollout(
        *("sandbox", "run", "--image", image, "--workdir", "/testbed", "-e", "A=b"),
        *("--", 'echo "$A"; echo err >&2; exit 7'),
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "b\n"), done.stderr
    assert "err\n" in done.stderr


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_sandbox_with_its_command(number: signal.Signals, tmp_path: Path) -> None:
    image, mark = _image(), f"49{number.value}.{time.time_ns() % 10**6:06}"
    process = subprocess.Popen(
        [*COMMAND, "sandbox", "run", "--image", image, "--", "sleep", mark], cwd=tmp_path
    )
    block_until(lambda: _running(mark) or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    block_until(lambda: not _running(mark))


def _image() -> str:
    """An image that the job has built."""
    return load_pairs()["sqlparse"].image


def _running(mark: str) -> list[str]:
    """The processes that sleep for so long, this command's own line aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(path.parent.name)
    return found
