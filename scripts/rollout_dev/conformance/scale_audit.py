"""Kill workers and the operator during a job of thousands of episodes; audit it by its store alone.

    scripts/build-images worker --load
    swe-rollout install | kubectl apply --server-side -f -
    scripts/conformance scale_audit [--episodes 10000] [--kills 200]

The pods are those of `scripts/bench scale`. A random process is killed by SIGKILL, every fifth time
the operator's. What is read from the store afterwards: a record for each episode of the plan and no
other, none masked, no other object among them, and no journal left. A key holds one record, whose
creation is conditional: who comes second finds it there.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import tempfile
from argparse import Namespace
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rollout_dev.bench.common import repeatedly
from rollout_dev.bench.scale import NODES, STORE, Played, Size, play
from rollout_dev.bench.scale_scene import fleet, pids
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.report import Report, Row, option, program
from swe_rollout.store.plan import Plan
from swe_rollout.store.store import Store

_OPERATOR_SHARE: Final = 0.2
_KILLS_OF_A_WORKER: Final = 4
"""On average. A worker that is killed five times without getting further is given up."""


@dataclass(slots=True)
class Killer:
    """Kills a random worker, or the operator, again and again."""

    left: int
    every_s: float
    moments: random.Random
    killed: dict[str, int] = field(default_factory=lambda: {"worker": 0, "operator": 0})

    def working(self) -> AbstractContextManager[None]:
        """Kill while the block runs."""
        return repeatedly(self._kill, lambda: self.moments.expovariate(1 / self.every_s))

    def _kill(self) -> None:
        role = "operator" if self.moments.random() < _OPERATOR_SHARE else "worker"
        if self.left and (found := sorted(pids(role))):
            os.kill(self.moments.choice(found), signal.SIGKILL)
            self.killed[role] += 1
            self.left -= 1


@program(
    option("--pods", type=int, default=1000, help="at once"),
    option("--episodes", type=int, default=10_000),
    option("--kills", type=int, default=200),
    option("--every", type=float, default=5.0, help="seconds between kills, mean"),
    option("--turn-s", type=float, default=5.0, help="mean time of a turn"),
    option("--seed", type=int, default=0),
    quick="100 pods and 10 kills",
)
def main(given: Namespace) -> Report:
    """Run the job, kill and audit; nothing may be missing or left over."""
    pods, episodes, kills = given.pods, given.episodes, given.kills
    if given.quick:
        pods, episodes, kills = 100, 200, 10
    workers = math.ceil(kills * (1 - _OPERATOR_SHARE) / _KILLS_OF_A_WORKER)
    size = Size(pods, episodes / pods, workers)
    killer = Killer(kills, given.every, random.Random(given.seed))  # noqa: S311
    with (
        tempfile.TemporaryDirectory() as name,
        fleet(
            Checkout.here(),
            nodes=50 if given.quick else NODES,
            tasks=size.tasks,
            turn_s=given.turn_s,
            folder=Path(name),
        ) as scene,
    ):
        played = play(scene, size, given.turn_s, killer.working())
    return _report(played, killer, kills)


def _report(played: Played, killer: Killer, kills: int) -> Report:
    plan, journals, strays = asyncio.run(_stored(played.job))
    once = frozenset(record.episode for record in played.records)
    figures = {
        "episodes": plan.episodes,
        "kills_of_workers": killer.killed["worker"],
        "kills_of_operator": killer.killed["operator"],
        "lost": plan.missing(once),
        "stray_objects": strays,
        "not_of_the_plan": plan.unplanned(once),
        "masked": sum(record.failure is not None for record in played.records),
        "resumed": sum(record.resumption is not None for record in played.records),
        "journals_left": journals,
        "seconds_s": round(played.seconds, 1),
    }
    wrong = ("lost", "stray_objects", "not_of_the_plan", "masked", "journals_left")
    return Report(
        "scale_audit",
        (Row(f"{played.size.pods} pods", figures),),
        ok=not any(figures[name] for name in wrong) and sum(killer.killed.values()) >= kills,
    )


async def _stored(job: str) -> tuple[Plan, int, int]:
    """Return the job's plan, and how many episodes have a journal left, and how many strays are."""
    store = Store.open(STORE)
    left = len(await store.journals(job).listed())
    return await store.plan(job), left, len((await store.listing(job)).strays)
