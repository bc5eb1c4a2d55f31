"""Kill a run repeatedly at random times, and compare its records with an undisturbed run's.

A counting policy's episodes run in local sandboxes. The process gets SIGKILL, and the same command
is restarted until everything is committed. Every record, without its times, is compared with the
undisturbed run's, as is each episode's file, which has a line for each executed command. Exits with
1 if one differs, an episode is lost, or more was sampled again than the turns in flight.

With `--clock-jumps`, the wall clock of the processes also jumps back and forth by hours and days;
with `--every 0` nothing else happens to them. No duration in a record may be negative, or longer
than the whole run.

With `--pods`, a job runs in pods of the dev cluster, and its worker, the operator, the engine, the
API server or a sandbox is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rollout_dev.conformance.chaos import killed_job
from rollout_dev.conformance.chaos.killed_job import RESUMED, differences, seed_of, wrong_durations
from rollout_dev.conformance.stepped_clock import INSTALL, LEAST_S, LIBRARY, MODULE, SteppedClock
from rollout_dev.counting import ASKED, VARIABLES, records, run_command, write_job
from rollout_dev.report import Report, Row, option, program


@dataclass(slots=True)
class Killed:
    """A run and its kills."""

    kills: int = 0
    slowest_s: float = 0.0
    """The longest time from a process's start after a kill to its first turn."""
    problems: list[str] = field(default_factory=list)


@program(
    option("--episodes", type=int, default=64),
    option("--turns", type=int, default=20),
    option("--parallelism", type=int, default=16),
    option("--every", type=float, default=5.0, help="seconds between kills, mean; 0: no kills"),
    option(
        "--clock-jumps",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="seconds between jumps of the wall clock, mean; 0: none",
    ),
    option("--pause", type=float, default=0.2, help="seconds of the engine per turn"),
    option("--seed", type=int, default=0, help="of the moments; 0: the clock's"),
    option("--pods", action="store_true", help="on the dev cluster"),
    option("--harness", action="store_true", help="the agent is a program in its pod"),
    option("--workers", type=int, default=1, help="of the job in pods"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Run both, and compare them."""
    if given.episodes % given.workers:
        given.error("each worker plays as many episodes as the others")
    if given.clock_jumps and (given.pods or not LIBRARY.exists()):
        why = "is for local sandboxes" if given.pods else f"needs libfaketime: `{INSTALL}`"
        given.error(f"--clock-jumps {why}")
    if given.harness and not given.pods:
        given.error("--harness is for pods: local sandboxes end with their process")
    if given.pods and not given.every:
        given.error("--every 0 is for local sandboxes")
    if given.pods:
        return killed_job.measure(given)
    with tempfile.TemporaryDirectory() as name:
        return _measure(Path(name), given)


def _measure(folder: Path, given: Namespace) -> Report:
    seed = seed_of(given)
    alone, other = folder / "alone", folder / "killed"
    _wait(_start(_job(alone, given)))
    moments = random.Random(seed)  # noqa: S311
    clock = None
    if given.clock_jumps:
        clock = SteppedClock(folder / "clock", random.Random(seed), given.clock_jumps)  # noqa: S311
    began = time.monotonic()
    with nullcontext() if clock is None else clock.jumping():
        killed = _kill(_job(other, given), moments, given.every, clock)
    took_s = time.monotonic() - began
    expected, found = records(alone), records(other)
    problems = [*killed.problems, *differences(expected, found, given.turns)]
    problems += wrong_durations(found, took_s)
    sampled = _asked(other)
    thrown_away = sum(sampled.values()) - given.episodes * given.turns
    if thrown_away > killed.kills * given.parallelism:
        problems.append(f"{thrown_away} turns were sampled again, of {killed.kills} kills")
    if left := list(other.glob("store/job/journals/**/*.zst")):
        problems.append(f"{len(left)} chunks of journals are left")
    resumed = sum(bool(record.get(RESUMED)) for record in found.values())
    figures = {
        "episodes": float(given.episodes),
        "committed": float(len(found)),
        "kills": float(killed.kills),
        "resumed": float(resumed),
        "clock_jumps": float(clock.jumps if clock is not None else 0),
        "records_of_another_hour": float(sum(map(_is_of_another_hour, found.values()))),
        "turns_sampled_again": float(thrown_away),
        "problems": float(len(problems)),
    }
    return Report(
        "crash_equal",
        (Row("local", figures),),
        ok=not problems and len(found) == given.episodes,
        notes=(f"seed {seed}", f"{given.turns} turns an episode", *problems[:20]),
    )


def _job(folder: Path, given: Namespace) -> Path:
    return write_job(
        folder,
        episodes=given.episodes,
        turns=given.turns,
        parallelism=given.parallelism,
        pause_s=given.pause,
    )


def _start(job: Path, clock: SteppedClock | None = None) -> subprocess.Popen[bytes]:
    added = VARIABLES | {ASKED: str(job.parent / "asked")}
    added |= clock.variables() if clock is not None else {}
    command = run_command(job) if clock is None else run_command(job, MODULE)
    with (job.parent / "log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | added, start_new_session=True
        )


def _wait(run: subprocess.Popen[bytes]) -> None:
    if run.wait() != 0:
        sys.stderr.write(f"the run ended with {run.returncode}\n")


def _kill(
    job: Path, rng: random.Random, every_s: float, clock: SteppedClock | None = None
) -> Killed:
    """Kill the run again and again until it completes."""
    killed = Killed()
    asked = job.parent / "asked"
    while True:
        before = asked.stat().st_size if asked.exists() else 0
        run = _start(job, clock)
        # Killing a process during its imports proves nothing.
        while run.poll() is None and (asked.stat().st_size if asked.exists() else 0) == before:
            time.sleep(0.02)
        try:
            run.wait(timeout=rng.uniform(0.0, 2 * every_s) if every_s else None)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.wait()
            killed.kills += 1
            sys.stderr.write(f"\r{killed.kills} kills")
            continue
        if run.returncode != 0:
            killed.problems.append(f"a run ended with {run.returncode}")
        sys.stderr.write("\n")
        return killed


def _is_of_another_hour(record: Mapping[str, object]) -> bool:
    """Return whether the process that wrote the record really had a wrong clock."""
    ended = datetime.fromisoformat(str(record["finished_at"]))
    return abs((datetime.now(UTC) - ended).total_seconds()) > LEAST_S


def _asked(folder: Path) -> Counter[str]:
    """Return how often each turn was sampled."""
    return Counter((folder / "asked").read_text().splitlines())
