"""Time from the start of the command to its end, beside an interpreter that does nothing.

Subjects take turns. The goal applies to wall-clock time, which users wait for, so measure on an
idle machine. `--job runs/demo` measures `status` of that job; by default, of a job without
episodes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rollout_dev.report import Report, Row, option, program
from swe_rollout.spec.load import load_job
from swe_rollout.store.store import Store

GOAL_MS: Final = 200.0
JOB: Final = Path(__file__).resolve().parents[3] / "examples" / "01-release-pairs" / "job.yaml"
FLOOR: Final = "python -c pass"


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A command and its measured cost."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    has_goal: bool = True


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run of a command."""

    wall_ms: float
    cpu_ms: float


@program(
    option("--job", help="a stored job, whose episodes `status` reads"),
    quick="fewer rounds",
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Measure the commands."""
    with tempfile.TemporaryDirectory(prefix="bench-cli-") as folder:
        asyncio.run(_begin(f"file://{folder}/runs"))
        job = str(Path(given.job).resolve()) if given.job else "runs/release-pairs"
        costs = _measure(_subjects(job), Path(folder), rounds=3 if given.quick else 15)
    return _report(costs)


async def _begin(store: str) -> None:
    job = load_job(JOB, ())
    await Store.open(store).begin(job, {"click-8.1.4": "0" * 12})


def _subjects(job: str) -> tuple[Subject, ...]:
    command = shutil.which("swe-rollout", path=str(Path(sys.executable).parent))
    program = (command,) if command else (sys.executable, "-m", "swe_rollout.cli.main")

    def completion(words: str) -> Mapping[str, str]:
        last = str(len(words.split(" ")) - 1)
        return {
            "_SWE_ROLLOUT_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": last,
        }

    return (
        Subject(FLOOR, (sys.executable, "-c", "pass"), has_goal=False),
        Subject("import swe_rollout", (sys.executable, "-c", "import swe_rollout")),
        Subject("--help", (*program, "--help")),
        Subject("status --help", (*program, "status", "--help")),
        Subject("status, jobs of this machine", (*program, "status")),
        Subject("status JOB", (*program, "status", job)),
        Subject("completion of a verb", program, completion("swe-rollout st")),
        Subject("completion of a job", program, completion("swe-rollout status runs/r")),
    )


def _measure(subjects: Sequence[Subject], folder: Path, rounds: int) -> dict[Subject, list[Cost]]:
    for subject in subjects:  # The first run compiles modules and fills caches.
        _run(subject, folder)
    costs: dict[Subject, list[Cost]] = {subject: [] for subject in subjects}
    for number in range(rounds):
        sys.stderr.write(f"round {number + 1} of {rounds}\n")
        for subject in subjects:
            costs[subject].append(_run(subject, folder))
    return costs


def _run(subject: Subject, folder: Path) -> Cost:
    names = ("PATH", "LANG", "VIRTUAL_ENV")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    began = time.monotonic()
    process = subprocess.Popen(
        subject.command,
        cwd=folder,
        env={**kept, "HOME": str(folder), **subject.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - began
    if process.stderr is not None:
        with process.stderr as errors:
            told = errors.read().decode(errors="replace")
        if process.returncode:
            raise RuntimeError(f"{subject.name} ended with {process.returncode}: {told}")
    return Cost(1e3 * wall_s, 1e3 * (usage.ru_utime + usage.ru_stime))


def _report(costs: Mapping[Subject, Sequence[Cost]]) -> Report:
    rows, wall = list[Row](), dict[str, float]()
    for subject, runs in costs.items():
        wall[subject.name] = statistics.median(run.wall_ms for run in runs)
        figures = {
            "cpu_p50_ms": round(statistics.median(run.cpu_ms for run in runs), 1),
            "wall_p50_ms": round(wall[subject.name], 1),
        }
        rows.append(Row(subject.name, figures))
    return Report(
        "cli",
        tuple(rows),
        ok=all(wall[each.name] <= GOAL_MS for each in costs if each.has_goal),
        notes=(
            f"goal: at most {GOAL_MS:g} ms for each, by the wall clock",
            "it also counts what else runs on the machine: compare with `python -c pass`",
        ),
    )
