"""Time from a fork to the first command of its episodes: eight of a tree of 300 MB, at once.

An episode changes 1 MB of the tree and is committed with its journal. Then its second turn is
forked: the journal is read and checked, and eight episodes begin in sandboxes of their own, until
the first turn that is theirs has run its command. The engine takes no time. The floor is eight
fresh sandboxes of the same image and a first command in each; both take turns. Local sandboxes, or
with `--pods` warm pods, in a namespace made for the run: an image of 300 MB is put on the dev
cluster's node for them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rollout_dev.bench.common import LARGE_IMAGE, Times, load_large_image, make_large_image, rounds
from rollout_dev.bench.sandbox_start import until_warm
from rollout_dev.counting import SUBMIT, Counting, bash
from rollout_dev.exec_clients.base import open_site
from rollout_dev.report import Report, Row, option, program
from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.events import Event, TurnEnded
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.job import ForkSpec, RolloutJob
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.worker.assembly import assemble
from swe_rollout.worker.forks import JournalKeeper, find_fork_point
from swe_rollout.worker.resume import ResumableEpisodes
from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes

FORK: Final = "fork to first command, of eight"
FLOOR: Final = "fresh sandbox to first command, of eight"
GOAL_MS: Final = 500.0
_CHILDREN: Final = 8
_POD_IMAGE: Final = "swe-rollout/bench-fork:local"
_FOLDERS: Final = 100
_EDIT: Final = (
    "n=0; while [ $n -lt 20 ]; do head -c 50000 /dev/urandom >part$n/file$n.py; n=$((n + 1)); done"
)
_SETTLE_S: Final = 1.0
"""A pause after pods are ready: their start is not part of the measurement."""


class _Editor(Counting):
    """Edits the tree, looks at it, and submits."""

    def text(self, request: GenerateRequest) -> str:
        return (bash(_EDIT), bash("ls part0 | wc -l"), SUBMIT)[request.turn]


@dataclass(slots=True)
class _FirstTurns:
    """Records when each episode has ended its first turn of its own."""

    at: dict[EpisodeId, float] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, TurnEnded):
            self.at.setdefault(event.episode, time.monotonic())


@program(
    option("--pods", action="store_true", help="warm pods on the dev cluster"),
    quick="fewer rounds",
    kubeconfig=True,
)
async def main(given: Namespace) -> Report:
    """Measure in local sandboxes, or in pods."""
    if refusal := "" if given.pods else bubblewrap.refusal():
        return Report("fork", (Row(FORK, skipped=refusal),), ok=False)
    rounds = 2 if given.quick else 8
    with tempfile.TemporaryDirectory(prefix="bench-fork-") as home:
        if given.pods:
            await asyncio.to_thread(
                load_large_image, _POD_IMAGE, "base", folders=_FOLDERS, change=_make_repository
            )
        os.environ["XDG_CACHE_HOME"] = home
        if given.pods:
            return await _measure_pods(Path(home), given.kubeconfig, rounds)
        return await _measure_local(Path(home), rounds)


async def _measure_local(home: Path, rounds: int) -> Report:
    sys.stderr.write("making the tree\n")
    tree = await asyncio.to_thread(make_large_image, home / "images", folders=_FOLDERS)
    _make_repository(tree)
    local = {"images": f"{home}/images", "isolation": "bubblewrap"}
    return await _measure(home, {"local": local}, LARGE_IMAGE, rounds)


async def _measure_pods(home: Path, kubeconfig: str | None, rounds: int) -> Report:
    async with open_site(kubeconfig, prefix="bench-fork-") as site:
        pod = {
            "namespace": site.namespace,
            "resources": {"cpu": "10m", "memory": "1Gi", "ephemeralStorage": "2Gi"},
            "warm": {"cap": _CHILDREN, "perImage": _CHILDREN},
        }
        return await _measure(home, {"pod": pod}, _POD_IMAGE, rounds)


def _job(home: Path, sandbox: dict[str, object]) -> RolloutJob:
    spec = {
        "dataset": {"releasePairs": {}},
        "policy": {"engine": {"use": "editor:Editor"}},
        "grading": {"enabled": False},
        "sandbox": sandbox,
        "store": {"uri": f"file://{home}/store"},
    }
    return RolloutJob.model_validate({"metadata": {"name": "bench"}, "spec": spec})


async def _measure(home: Path, sandbox: dict[str, object], image: str, count: int) -> Report:
    task = Instance(instance_id="large", problem_statement="Edit the tree.", image=image)
    job, first, delta_bytes = _job(home, sandbox), _FirstTurns(), 0
    samples = Times()
    async with AsyncExitStack() as stack:
        setup = SandboxSetup([task], job.metadata.name, lambda _: None, harmless=True)
        sandboxes = open_sandboxes(job.spec.sandbox, setup, stack)
        context = await assemble(
            job,
            [task],
            sandboxes=sandboxes,
            publish=first,
            on_note=lambda _: None,
            stack=stack,
            engine=_Editor(),
        )
        await _play_origin(job, context, task)
        for number in rounds(count):
            samples.add(FLOOR, *await _fresh(context, task, number))
            times, delta_bytes = await _forks(job, context, task, first, number)
            samples.add(FORK, *times)
    return _report(samples, delta_bytes, pods=job.spec.sandbox.pod is not None)


def _make_repository(tree: Path) -> None:
    """Commit the 150 MB of files; git's objects take up as much again."""
    as_somebody = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for step in (("init", "-q"), ("add", "-A"), (*as_somebody, "commit", "-q", "-m", "tree")):
        subprocess.run(("git", "-C", str(tree), *step), check=True)


async def _waiting(context: JobContext, attempts: Sequence[Attempt]) -> None:
    """Wait until there are warm pods for the attempts, if sandboxes are pods."""
    if isinstance(context.sandboxes, PodProvider):
        context.prewarm((), attempts)
        await until_warm(context.sandboxes, len(attempts))
        await asyncio.sleep(_SETTLE_S)


async def _play_origin(job: RolloutJob, context: JobContext, task: Instance) -> None:
    """Play the episode to be forked, and commit it with its journal."""
    store = Store.open(job.spec.store.uri)
    await store.begin(job, {task.instance_id: task.digest})
    name = job.metadata.name
    keeper = JournalKeeper(store, name)
    episodes = ResumableEpisodes(store.journals(name), {}, keeper=keeper)
    played = await episodes.play(Attempt(EpisodeId(name, task.instance_id, 0), task, 1), context)
    if played.failure is not None:
        raise RuntimeError(f"the episode failed: {played.failure.message}")
    await store.commit(await episodes.keep(played, fork=None))


async def _forks(
    job: RolloutJob, context: JobContext, task: Instance, first: _FirstTurns, number: int
) -> tuple[list[float], int]:
    """Fork it; return the seconds to each first command, and the size of the deltas."""
    store = Store.open(job.spec.store.uri)
    name = job.metadata.name
    attempts = [
        Attempt(EpisodeId(f"fork{number}", task.instance_id, sample), task, 1)
        for sample in range(_CHILDREN)
    ]
    await _waiting(context, attempts)
    first.at.clear()
    began = time.monotonic()
    wanted = ForkSpec(
        uri=f"{job.spec.store.uri}/{name}", instance=task.instance_id, sample=0, turn=1
    )
    point = await find_fork_point(wanted, job, context, [task])
    forking = replace(context, fork=point)
    episodes = ResumableEpisodes(store.journals(f"fork{number}"), {})
    played = await asyncio.gather(*(episodes.play(each, forking) for each in attempts))
    for each in played:
        if each.failure is not None:
            raise RuntimeError(f"a fork failed: {each.failure.message}")
    times = [first.at[each.episode] - began for each in attempts]
    return times, sum(len(delta.data) for delta in point.deltas)


async def _fresh(context: JobContext, task: Instance, number: int) -> list[float]:
    """Start eight sandboxes like agents' ones; return the seconds to each first command."""
    attempts = [
        Attempt(EpisodeId(f"floor{number}", task.instance_id, sample), task, 1)
        for sample in range(_CHILDREN)
    ]
    await _waiting(context, attempts)
    began = time.monotonic()

    async def one(attempt: Attempt) -> float:
        sandbox = await context.start_sandbox(attempt, snapshots=True)
        result = await sandbox.exec("ls part0 | wc -l")
        took_s = time.monotonic() - began
        await sandbox.close()
        if not result.ok:
            raise RuntimeError(f"the sandbox does not work: {result.stderr!r}")
        return took_s

    return await asyncio.gather(*map(one, attempts))


def _report(times: Times, delta_bytes: int, *, pods: bool) -> Report:
    return Report(
        "fork",
        times.rows(),
        ok=1e3 * times.p50_s(FORK) <= GOAL_MS,
        ratios={"fork_to_fresh": times.ratio(FORK, FLOOR)},
        notes=(
            f"goal: {GOAL_MS:g} ms p50",
            "warm pods" if pods else "local sandboxes",
            f"the deltas have {delta_bytes} bytes; {os.cpu_count()} cores",
        ),
    )
