"""What the verbs that read a whole job need: memory, time and requests, by the number of episodes.

The records are those of a scripted run, committed again under other names, 100 of each task. Each
verb is a process of its own; its requests are the calls to the store, and a listing is one for each
thousand names. Exits with 1 where memory grows with the job, or requests are more than the records
and the listings.
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from rollout_dev.report import Report, Row, option, program
from swe_rollout.cli.main import main as swe_rollout
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.objects import PAGE, FolderObjects
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory

GROWTH_MIB: Final = 64
"""The most that memory may grow from the smallest job to the largest."""
OTHER_REQUESTS: Final = 16
"""The most requests other than for records and for listings of episodes."""
_SIZES: Final = (1_000, 10_000, 100_000)
_QUICK: Final = (500, 5_000)
_SAMPLES: Final = 100
_REQUESTS: Final = "BENCH_STORE_REQUESTS"
_CALL: Final = (sys.executable, "-c", "from rollout_dev.bench.store import call; call()")
_AT_ONCE: Final = 64


class Verb(NamedTuple):
    """A command line."""

    arguments: tuple[str, ...]
    reads: int = 1
    """How often it reads each record; a listing more than once, if it does, too."""

    @property
    def name(self) -> str:
        """The subject of its row."""
        return " ".join(self.arguments)


_VERBS: Final = (
    Verb(("ls",), 0),
    Verb(("status",)),
    Verb(("stats",)),
    Verb(("logs",)),
    Verb(("view",)),
    Verb(("diff",), 2),
    Verb(("export", "--to", "jsonl")),
    Verb(("export", "--to", "parquet")),
)


class Used(NamedTuple):
    """What a verb needed."""

    peak_mib: float
    seconds: float
    requests: int


@program(
    option("--folder", type=Path, help="where the store is made, and kept"),
    option("--samples", type=int, default=_SAMPLES, help="of each task"),
    option("--verb", default="", help="only verbs that begin so"),
    option("--sizes", type=int, nargs="+", help="numbers of episodes"),
    quick="500 and 5,000 episodes",
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Fill the stores, and measure each verb."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        return _measure(folder, given)


def _measure(folder: Path, given: Namespace) -> Report:
    sizes = sorted(given.sizes or (_QUICK if given.quick else _SIZES))
    verbs = [each for each in _VERBS if each.name.startswith(given.verb)]
    found: dict[Verb, dict[int, Used]] = {verb: {} for verb in verbs}
    for size in sizes:
        job = folder / "stores" / str(size) / "job"
        if not (job / "plan.json").exists():
            asyncio.run(_fill(job, size, given.samples, _records(folder)))
        for verb in verbs:
            found[verb][size] = used = _run(verb, job)
            sys.stderr.write(f"{size} episodes: {verb.name}: {used}\n")
    growth = max(used[sizes[-1]].peak_mib - used[sizes[0]].peak_mib for used in found.values())
    others = max(
        used.requests - verb.reads * size - max(verb.reads, 1) * math.ceil(size / PAGE)
        for verb, each in found.items()
        for size, used in each.items()
    )
    return Report(
        "store",
        tuple(Row(verb.name, _figures(used)) for verb, used in found.items()),
        ok=growth <= GROWTH_MIB and others <= OTHER_REQUESTS,
        ratios={"memory_growth_mib": round(growth, 1), "other_requests": others},
        notes=(
            f"records of {len(_records(folder))} scripted episodes in a folder",
            f"goal: at most {GROWTH_MIB} MiB more for {sizes[-1]:,} episodes than for {sizes[0]:,}",
            f"goal: at most {OTHER_REQUESTS} requests beside those for records and their names",
        ),
    )


def _figures(used: dict[int, Used]) -> dict[str, float]:
    memory = {f"memory_{size}_mib": round(each.peak_mib, 1) for size, each in used.items()}
    times = {f"episodes_{size}_s": round(each.seconds, 1) for size, each in used.items()}
    requests = {f"requests_{size}": float(each.requests) for size, each in used.items()}
    return memory | times | requests


def _records(folder: Path) -> list[Trajectory]:
    """Play a task by a script in two ways, unless it was played, and return the records."""
    played = folder / "played"
    if not played.exists():
        job = {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": "job"},
            "spec": {
                "dataset": {"releasePairs": {"names": ["python-dotenv"]}},
                "samples": 2,
                "policy": {"scripted": {"scenarios": ["gold", "wrong"]}},
                "limits": {"turns": 40, "contextTokens": 131072},
                "sandbox": {"local": {}},
                "store": {"uri": f"file://{played}"},
            },
        }
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        _swe_rollout("run", str(path))
    return asyncio.run(_read(Store.open(f"file://{played}")))


async def _read(store: Store) -> list[Trajectory]:
    return [each async for each in store.trajectories("job", on_damage=lambda _: None)]


async def _fill(job: Path, size: int, samples: int, records: Sequence[Trajectory]) -> None:
    """Commit the records again, under `size` names."""
    store = Store.open(f"file://{job.parent}")
    plan = await Store.open(f"file://{job.parents[2]}/played").plan("job")
    spec = RolloutJob.model_validate(plan.job)
    spec = spec.model_copy(update={"spec": spec.spec.model_copy(update={"samples": samples})})
    tasks = {f"task-{number:06}": f"{number:064x}" for number in range(math.ceil(size / samples))}
    await store.begin(spec, tasks)
    episodes = (EpisodeId("job", task, sample) for task in tasks for sample in range(samples))
    numbered = enumerate(episodes)
    while some := list(islice(numbered, _AT_ONCE)):
        await asyncio.gather(
            *(store.commit(replace(records[n % len(records)], episode=each)) for n, each in some)
        )


def _run(verb: Verb, job: Path) -> Used:
    first, *rest = verb.arguments
    again = job.parents[1] / f"{job.parent.name}-again"
    if not again.exists():
        again.symlink_to(job.parent)
    jobs = [job, again / "job"]
    targets = map(str, jobs[: verb.reads] or [job.parent])
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        counted = Path(name) / "requests"
        env = os.environ | {_REQUESTS: str(counted)}
        began = time.monotonic()
        done = subprocess.run(
            [*_CALL, first, *targets, *rest],
            cwd=name,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if done.returncode:
            sys.exit(f"{verb.name}: {done.stderr}")
        peak_kib, requests = map(int, counted.read_text().split())
        return Used(peak_kib / 1024, seconds, requests)


def _swe_rollout(*arguments: str) -> None:
    command = [sys.executable, "-m", "swe_rollout.cli.main", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def call() -> None:
    """Run the command line of this process, and write the number of its requests."""
    count = Counter[str]()
    for name in ("read", "create", "folders", "written_at", "move", "delete"):
        _count(FolderObjects, name, count)
    pages = FolderObjects.pages

    def listed(self: FolderObjects, prefix: str, after: str | None = None) -> Iterator[list[str]]:
        found = 0
        for page in pages(self, prefix, after):
            found += len(page)
            yield page
        count["list"] += max(1, math.ceil(found / PAGE))

    FolderObjects.pages = listed  # type: ignore[method-assign]
    sys.argv[0] = "swe-rollout"
    try:
        swe_rollout()
    finally:
        # The parent's memory is in `getrusage` of a child, and not in this.
        status = Path("/proc/self/status").read_text()
        peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        Path(os.environ[_REQUESTS]).write_text(f"{peak} {count.total()}")


def _count(owner: type, name: str, count: Counter[str]) -> None:
    real: Callable[..., object] = getattr(owner, name)

    def counted(*arguments: object) -> object:
        count[name] += 1
        return real(*arguments)

    setattr(owner, name, counted)
