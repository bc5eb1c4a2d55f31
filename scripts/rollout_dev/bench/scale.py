"""Jobs with thousands of sandbox pods at once, on a thousand nodes that do not exist.

    scripts/build-images worker --load
    swe-rollout install | kubectl apply --server-side -f -
    scripts/bench scale --pods 5000 [--json]

API server, etcd, scheduler, operator and workers are the real ones, all on this machine; kwok plays
nodes and kubelets, and what is in the pods answers from a table. Each size has a job of twice as
many episodes as pods run at once, graded by their tests; half of them resolve. Delays of the engine
follow a recorded trajectory. Which episodes are committed is read from the store alone.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.bench.cluster_job import kubectl
from rollout_dev.bench.scale_scene import (
    LABEL,
    Fleet,
    PodTimes,
    Usage,
    fleet,
    requests,
    rows,
)
from rollout_dev.dev_cluster import native
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.report import Report, Row, option, program
from swe_rollout import RolloutJob
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.store import Store
from swe_rollout.types.trajectory import Trajectory

NODES: Final = 1000
P50_S, P99_S = 1.0, 5.0
"""agent-sandbox's bar: the time from a claim to a sandbox that can be used."""
STORE: Final = "s3://rollouts"
_SECRET: Final = "scale-s3"  # noqa: S105 - its name
_TOKENIZER: Final = "/usr/local/lib/python3.11/dist-packages/swe_rollout/testing/tokenizer"
"""In the workers' image."""
_PATIENCE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a job by the pods that it runs at once."""

    pods: int
    rounds: float = 2.0
    """Episodes for each pod that runs at once."""
    workers: int | None = None
    """None: as many as the operator chooses."""

    @property
    def tasks(self) -> int:
        return max(20, self.pods // 50, 5 * (self.workers or 0))

    @property
    def samples(self) -> int:
        return math.ceil(self.rounds * self.pods / self.tasks)

    @property
    def episodes(self) -> int:
        return self.tasks * self.samples


@dataclass(frozen=True, slots=True)
class Played:
    """A job that has ended, as the store and its observers have it."""

    job: str
    size: Size
    seconds: float
    pods: PodTimes
    usage: Usage
    requests: Counter[str]
    records: Sequence[Trajectory]
    turn_s: float

    @property
    def row(self) -> Row:
        """The figures of the job."""
        n, peak = self.size.episodes, self.usage.peak_mib
        planned = [each for each in self.records if each.episode.sample < self.size.samples]
        starts = sorted(record.timing.start_s for record in self.records)
        turns = sum(len(record.turns) for record in self.records)
        ideal = turns * self.turn_s / self.size.pods
        by_verb = {f"{verb}_per_episode": c / n for verb, c in _by_verb(self.requests).items()}
        cpu = {
            f"{role.replace('-', '_')}_cpu_per_thousand_episodes_s": self.usage.cpu_of(role)
            * 1000
            / n
            for role in ("worker", "operator", "kube-apiserver", "etcd", "kube-scheduler")
        }
        figures = {
            "episodes": n,
            "at_once": self.pods.most_at_once,
            "creations_each_second": self.pods.per_s(self.size.pods),
            "claim_to_command_p50_s": _quantile(starts, 0.5),
            "claim_to_command_p90_s": _quantile(starts, 0.9),
            "claim_to_command_p99_s": _quantile(starts, 0.99),
            "seconds_s": self.seconds,
            "to_ideal": self.seconds / ideal,
            "pods_per_episode": len(self.pods.created) / n,
            **by_verb,
            **cpu,
            "worker_per_thousand_at_once_mib": peak["worker"] * 1000 / self.size.pods,
            "operator_mib": peak["operator"],
            "kube_apiserver_mib": peak["kube-apiserver"],
            "masked": sum(record.failure is not None for record in self.records),
            "replaced": len(self.records) - len(planned),
            "lost": n - len(planned),
        }
        return Row(f"{self.size.pods} pods", {k: round(v, 3) for k, v in figures.items()})


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else math.nan


def _by_verb(counted: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in counted.items():
        verb, _, resource = name.partition(" ")
        found["execs" if resource == "pods/exec" else f"{verb.lower()}s"] += count
        found["requests"] += count
    return found


@program(
    option("--pods", type=int, default=5000, help="default: 5000, after 500 and 2000"),
    option("--alone", action="store_true", help="no other sizes"),
    option("--rounds", type=float, default=2.0, help="episodes a pod (default: 2)"),
    option("--turn-s", type=float, default=60.0, help="mean time of a turn (default: 60)"),
    quick="100 pods, on 50 nodes",
)
def main(given: Namespace) -> Report:
    """Run the jobs."""
    smaller = () if given.alone else (500, 2000)
    counts = (100,) if given.quick else sorted({*smaller, given.pods})
    sizes = [Size(count, given.rounds) for count in counts if count <= given.pods]
    with tempfile.TemporaryDirectory() as folder:
        return _measure(sizes, given.turn_s, Path(folder), 50 if given.quick else NODES)


def _measure(sizes: Sequence[Size], turn_s: float, folder: Path, nodes: int) -> Report:
    checkout = Checkout.here()
    os.environ["KUBECONFIG"] = str(checkout.kubeconfig)
    tasks = max(size.tasks for size in sizes)
    played = []
    with fleet(checkout, nodes=nodes, tasks=tasks, turn_s=turn_s, folder=folder) as scene:
        bare = asyncio.run(_bare_creations(min(1000, sizes[-1].pods)))
        floor = Row("bare create loop", {"creations_each_second": bare})
        # A whole run takes an hour: show each row as soon as it is known.
        sys.stderr.write(f"{floor}\n")
        for size in sizes:
            played.append(play(scene, size, turn_s))
            sys.stderr.write(f"{played[-1].row}\n")
    last = played[-1].row.figures
    return Report(
        "scale",
        (
            *(each.row for each in played),
            floor,
        ),
        ok=all(each.row.figures["lost"] == 0 for each in played)
        and last["claim_to_command_p50_s"] <= P50_S
        and last["claim_to_command_p99_s"] <= P99_S,
        ratios={"creations_to_bare_loop": round(last["creations_each_second"] / bare, 3)},
        notes=(
            f"goals: claim to first command p50 {P50_S:g} s, p99 {P99_S:g} s; none lost",
            f"{nodes} nodes of kwok; all processes share the {os.cpu_count()} cores of one machine",
            f"mean time of a turn {turn_s:g} s; ideal: the engine's time alone, over all pods",
            "requests: all that the API server had, of kwok, scheduler and controllers too",
        ),
    )


def play(
    scene: Fleet,
    size: Size,
    turn_s: float,
    meanwhile: AbstractContextManager[object] | None = None,
) -> Played:
    """Run a job on the fleet to its end."""
    name = f"scale-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    try:
        _give_store(scene.checkout, name)
        job = RolloutJob.from_rows(rows(size.tasks), name=name, spec=_spec(size, scene.engine))
        with PodTimes().watched(scene.checkout, name) as pods, Usage().sampled(scene) as usage:
            before, start = requests(), time.monotonic()
            job.launch(namespace=name)
            with meanwhile or nullcontext():
                _await_end(name, size)
            seconds, after = time.monotonic() - start, requests()
        counted = Counter({k: round(n - before.get(k, 0)) for k, n in after.items()})
        return Played(
            name, size, seconds, pods, usage, counted, asyncio.run(_records(name)), turn_s
        )
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def _spec(size: Size, engine: str) -> dict[str, object]:
    template = {
        "spec": {
            "nodeSelector": {LABEL: "yes"},
            "tolerations": [{"key": LABEL, "operator": "Exists"}],
        }
    }
    return {
        "samples": size.samples,
        "parallelism": size.pods,
        "policy": {"sglang": {"url": engine}, "tokenizer": _TOKENIZER},
        "limits": {"turns": 12, "contextTokens": 32768},
        "sandbox": {"pod": {"resources": {"cpu": "100m", "memory": "1Gi"}, "template": template}},
        "store": {"uri": STORE},
        "workers": {
            "count": size.workers,
            "secrets": [_SECRET],
            "resources": {"cpu": "20m", "memory": "640Mi"},
        },
    }


def _give_store(checkout: Checkout, namespace: str) -> None:
    """Start the S3 server of this machine; use it here, and give the namespace a way to it."""
    printed = subprocess.run(
        [checkout.root / "scripts" / "dev-s3", "up"], check=True, capture_output=True, text=True
    ).stdout
    for line in printed.splitlines():
        key, _, value = line.removeprefix("export ").partition("=")
        os.environ[key] = value.strip("'\"")
    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    address = native.forward(checkout, port, Progress())
    values = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    values["AWS_ENDPOINT_URL"] = f"http://{address}"
    literals = [f"--from-literal={key}={value}" for key, value in values.items()]
    kubectl("create", "secret", "generic", _SECRET, "-n", namespace, *literals)
    kubectl("label", "secret", _SECRET, "-n", namespace, "swe-rollout.dev/allow-workers=true")


async def _records(job: str) -> list[Trajectory]:
    damaged: list[DamagedRecord] = []
    found = Store.open(STORE).trajectories(job, on_damage=damaged.append)
    records = [record async for record in found]
    if damaged:
        raise ScriptError("Records can't be read.", why=str(damaged[0]))
    return records


async def _bare_creations(count: int) -> float:
    """Create and delete pods on the same nodes in a bare loop; return the creations a second."""
    namespace = f"floor-{secrets.token_hex(3)}"
    kubectl("create", "namespace", namespace)
    pod = {
        "metadata": {"generateName": "floor-"},
        "spec": {
            "nodeSelector": {LABEL: "yes"},
            "tolerations": [{"key": LABEL, "operator": "Exists"}],
            "containers": [
                {"name": "one", "image": "fleet:1"},
                {"name": "two", "image": "fleet:1"},
            ],
        },
    }
    start = time.monotonic()
    async with aclosing(await ClusterClient.connect()) as client:
        left = iter(range(count))

        async def create() -> None:
            for _ in left:
                await client.create(PODS, namespace, pod)

        await asyncio.gather(*(create() for _ in range(32)))
    seconds = time.monotonic() - start
    kubectl("delete", "namespace", namespace, "--wait=false")
    return round(count / seconds, 1)


def _await_end(namespace: str, size: Size) -> None:
    end = time.monotonic() + _PATIENCE_S
    path = "jsonpath={.status.state} {.status.episodes.committed} {.status.episodes.running}"
    while time.monotonic() < end:
        found = ""
        with suppress(ScriptError):  # An API server that is busy is asked again.
            found = kubectl("get", "rj", "-n", namespace, namespace, "-o", path)
        state, *counts = found.split() or ["not seen"]
        match state:
            case "Complete":
                return
            case "Failed":
                why = "jsonpath={.status.conditions[?(@.type=='Failed')].message}"
                found = kubectl("get", "rj", "-n", namespace, namespace, "-o", why)
                raise ScriptError("The job failed.", why=found)
            case _:
                sys.stderr.write(
                    f"\r{size.pods} pods: {state} {'/'.join(counts)} of {size.episodes} "
                )
                time.sleep(2)
    raise ScriptError(f"The job did not end within {_PATIENCE_S:g} s.")
