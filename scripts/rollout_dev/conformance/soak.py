"""Run scripted episodes for a long time, and show that nothing grows.

One `swe-rollout run` in local sandboxes is watched from outside and inside: its memory, threads,
descriptors, tasks, processes; mounts, cgroups and folders of the machine; objects of the store.
Prints the slope of each over episodes, after a warm-up, with its confidence, and anything left
after the run was stopped. Exits with 1 if something grows with confidence, or is left.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, linear_regression, variance
from typing import Final

import yaml

from rollout_dev.counting import INSIDE, VARIABLES, Leak, run_command, write_job
from rollout_dev.dev_cluster.process import Process
from rollout_dev.report import Report, Row, option, program
from swe_rollout.sandbox.local import cgroups
from swe_rollout.sandbox.local.leftovers import sandboxes_folder

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_RECORDS: Final = ("trajectory.json.zst",)


def of_process(pid: int) -> dict[str, float]:
    """Return the memory, descriptors, threads and descendants of a process."""
    process = Path("/proc", str(pid))
    resident = int((process / "statm").read_text().split()[1])
    return {
        "rss_kib": resident * _PAGE / 1024,
        "descriptors": float(_entries(process / "fd")),
        "threads": float(_entries(process / "task")),
        "processes": float(len(found.family) - 1 if (found := Process.of(pid)) else 0),
    }


def of_machine(pid: int, temporary: Path) -> dict[str, float]:
    """Return mounts of the machine, and cgroups and folders of a process.

    `temporary` is the process's temporary folder. Names of things it creates contain its id.
    """
    folders = sandboxes_folder().glob(f"{pid}-*")
    return {
        "mounts": float(len(Path("/proc/self/mountinfo").read_text().splitlines())),
        "control_groups": float(sum(1 for _ in _groups(pid))),
        "sandbox_folders": float(sum(map(_entries, folders))),
        "temporary_files": float(_entries(temporary)),
    }


def of_store(folder: Path) -> tuple[int, float]:
    """Return the number of committed episodes, and of objects other than their records."""
    episodes = others = 0
    for _, _, files in os.walk(folder):
        records = sum(name in _RECORDS for name in files)
        episodes += records
        others += len(files) - records
    return episodes, float(others)


def _groups(pid: int) -> Iterable[Path]:
    for parent in cgroups.find_parents():
        with suppress(OSError):
            yield from parent.path.glob(f"swe-rollout-{pid}-*")


def _entries(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


BATCHES: Final = 10
_T: Final = 5.041
"""99.95 % of Student's distribution with `BATCHES` - 2 degrees of freedom."""
WARM_UP: Final = 0.3
"""Share of the first samples, in which caches fill; they are left out."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How fast something grows, per episode."""

    value: float
    error: float
    """Half of the interval that holds the true slope with 99.9 % confidence."""
    level: float
    """The mean after the warm-up."""

    def is_above(self, allowed: float) -> bool:
        """Return whether it grows faster than `allowed`, with confidence."""
        return self.value - self.error > allowed


def slope(episodes: Sequence[float], counts: Sequence[float]) -> Slope:
    """Return the slope of counts over the number of episodes completed at the time.

    Raises ValueError for fewer than two samples in each batch, or if no episode was completed.
    """
    first = int(len(episodes) * WARM_UP)
    xs, ys = episodes[first:], counts[first:]
    size = len(xs) // BATCHES
    if size < 2:  # noqa: PLR2004
        raise ValueError(f"{len(episodes)} samples are too few: run it for longer")
    points = [
        (fmean(xs[at : at + size]), fmean(ys[at : at + size]))
        for at in range(len(xs) - BATCHES * size, len(xs), size)
    ]
    at, seen = zip(*points, strict=True)
    if not (spread := variance(at) * (BATCHES - 1)):
        raise ValueError("no episode was done: run it for longer")
    line = linear_regression(at, seen)
    rest = sum((y - line.intercept - line.slope * x) ** 2 for x, y in points)
    return Slope(line.slope, _T * math.sqrt(rest / (BATCHES - 2) / spread), fmean(seen))


_MOST_EPISODES: Final = 10_000
_EVERY_S: Final = 1.0
_STOP_S: Final = 120.0
_LEFT_S: Final = 20.0
ALLOWED: Final = {"rss_kib": 4.0, "objects": 20.0}
"""Per episode: a run knows which of its episodes are committed. Everything else: a thousandth."""
_ALLOWED: Final = 0.001


@dataclass(slots=True)
class Soak:
    """The samples of a soak."""

    minutes: float = 0.0
    episodes: list[float] = field(default_factory=list)
    counts: dict[str, list[float]] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)

    def add(self, episodes: int, seen: dict[str, float]) -> None:
        """Add one sample."""
        self.episodes.append(float(episodes))
        for name, count in seen.items():
            self.counts.setdefault(name, []).append(count)


@program(
    option("--minutes", type=float, default=30.0),
    option("--episodes", type=int, default=_MOST_EPISODES, help="stop after so many"),
    option("--parallelism", type=int, default=4),
    option("--turns", type=int, default=12, help="fewer: the most episodes are reached sooner"),
    option("--every", type=float, default=_EVERY_S, help="seconds between samples"),
    option("--leak", choices=list(Leak), default=Leak.NONE, help="see it found"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Soak; nothing may grow, and nothing be left."""
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        return report_of(soak(Path(folder), given), given)


def soak(folder: Path, given: Namespace) -> Soak:
    """Run episodes and take samples until the time is up."""
    temporary = folder / "tmp"
    temporary.mkdir()
    job = _job(folder, given)
    found = Soak()
    inside = folder / "inside"
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen(
            run_command(job),
            stdout=log,
            stderr=log,
            env=os.environ | VARIABLES | {"TMPDIR": str(temporary), INSIDE: str(inside)},
            start_new_session=True,
        )
        try:
            _watch(run, folder, found, given)
        finally:
            _stop(run)
    over_at = time.monotonic() + _LEFT_S
    found.left = _left(run.pid, temporary)
    while found.left and time.monotonic() < over_at:
        time.sleep(0.1)
        found.left = _left(run.pid, temporary)
    if not found.episodes:
        sys.stderr.write((folder / "log").read_text(errors="replace")[-3000:])
    return found


def _left(pid: int, temporary: Path) -> dict[str, float]:
    """Return the resources that an ended run has left."""
    counts = of_machine(pid, temporary)
    return {name: count for name, count in counts.items() if name != "mounts" and count}


def _job(folder: Path, given: Namespace) -> Path:
    job = write_job(
        folder,
        episodes=min(given.episodes, _MOST_EPISODES),
        turns=given.turns,
        parallelism=given.parallelism,
        pause_s=0.0,
    )
    document = yaml.safe_load(job.read_text())
    parameters = {"turns": given.turns, "leak": str(given.leak)}
    use = {"use": "rollout_dev.counting:Soaking", "with": parameters}
    document["spec"]["policy"] = {"engine": use}
    job.write_text(yaml.safe_dump(document))
    return job


def _watch(run: subprocess.Popen[bytes], folder: Path, found: Soak, given: Namespace) -> None:
    over_at = time.monotonic() + 60 * given.minutes
    store, inside = folder / "store", folder / "inside"
    while run.poll() is None and time.monotonic() < over_at:
        time.sleep(given.every)
        episodes, others = of_store(store)
        if not episodes or not inside.exists():
            continue
        with suppress(OSError):  # it has just ended
            seen = of_process(run.pid) | of_machine(run.pid, folder / "tmp")
            seen |= json.loads(inside.read_text())
            found.add(episodes, seen | {"store_objects": others})
        sys.stderr.write(f"\r{episodes} episodes ")
        found.minutes = given.minutes - (over_at - time.monotonic()) / 60
        if episodes >= given.episodes - given.parallelism:
            break  # what follows is its end
    sys.stderr.write("\n")


def _stop(run: subprocess.Popen[bytes]) -> None:
    run.send_signal(signal.SIGINT)
    try:
        run.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()


def report_of(found: Soak, given: Namespace) -> Report:
    """Return the slopes, and whether any is above zero with confidence."""
    rows, growing = [], []
    for name, counts in found.counts.items():
        try:
            each = slope(found.episodes, counts)
        except ValueError as error:
            return Report("soak", (), ok=False, notes=(str(error),))
        allowed = ALLOWED.get(name, _ALLOWED)
        if each.is_above(allowed):
            growing.append(f"{name} grows by {each.value:.4g} an episode")
        figures = {
            "slope": float(f"{each.value:.3g}"),
            "plus_minus": float(f"{each.error:.3g}"),
            "allowed": allowed,
            "level": float(f"{each.level:.6g}"),
        }
        rows.append(Row(name, figures))
    left = [f"{count:g} more {name} are left" for name, count in found.left.items()]
    done = int(found.episodes[-1]) if found.episodes else 0
    notes = (
        f"{done} episodes in {found.minutes:.1f} minutes, {len(found.episodes)} samples",
        "slopes are per episode",
    )
    return Report(
        "soak",
        tuple(rows),
        ok=bool(rows) and not growing and not left,
        notes=(
            *notes,
            *growing,
            *left,
            *([f"leak: {given.leak}"] if given.leak != Leak.NONE else []),
        ),
    )
