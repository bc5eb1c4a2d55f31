"""From the loss of a pod to the next command in one that is rebuilt: 300 MB of files, 1 MB changed.

An episode waits for this when its sandbox's pod is killed: the loss is noticed, another pod of the
image starts, the delta is applied, and a command runs. The floor is the start of a fresh pod and
its first command. With warm pods, the other one waits already; `fork --pods` starts eight of them.

Needs the dev cluster, and puts an image of 300 MB on its node.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Final

from rollout_dev.bench.common import Times, load_large_image, rounds
from rollout_dev.bench.sandbox_start import until_warm
from rollout_dev.conformance.chaos.processes import kill_pod
from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import open_site
from rollout_dev.report import Report, program
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod

START: Final = "start + first command"
NOTICED: Final = "loss noticed"
COLD: Final = "loss to next command"
WARM: Final = "loss to next command, warm pods"
GOAL_S: Final = 3.0
_IMAGE: Final = "swe-rollout/bench-large:local"
_FOLDERS: Final = 200
_EDIT: Final = (
    "n=0; while [ $n -lt 20 ]; do head -c 50000 /dev/urandom >/testbed/part$n/file$n.py; "
    "n=$((n + 1)); done"
)
_SETTLE_S: Final = 1.0


@program(quick="fewer rounds", kubeconfig=True)
async def main(given: Namespace) -> Report:
    """Load the image, and measure."""
    await asyncio.to_thread(load_large_image, _IMAGE, "busybox", folders=_FOLDERS)
    times, count = Times(), 3 if given.quick else 10
    async with open_site(given.kubeconfig, prefix="bench-loss-") as site:
        await ours.without_policy_if_forbidden(site)
        numbers = itertools.count()
        async with ours.provider(site) as provider:
            await (await _started(provider, numbers)).close()  # opens the provider's connections
            for _ in rounds(count):
                with times.timed(START):
                    pod = await _started(provider, numbers)
                await pod.close()
                await _lost(provider, numbers, times, COLD)
        async with ours.provider(site, warm=1) as provider:
            await (await _started(provider, numbers)).close()
            for _ in rounds(count, "round with warm pods"):
                await _lost(provider, numbers, times, WARM, warm=1)
    return Report(
        "pod_loss",
        times.rows("samples"),
        ok=times.p50_s(COLD) <= GOAL_S,
        ratios={
            "loss_to_start": times.ratio(COLD, START),
            "warm_loss_to_start": times.ratio(WARM, START),
        },
        notes=(f"goal: p50 of a loss {GOAL_S:g} s",),
    )


async def _lost(
    provider: PodProvider,
    numbers: Iterator[int],
    times: Times,
    subject: str,
    *,
    warm: int = 0,
) -> None:
    """Lose a pod in the middle of a command, and continue in another one."""
    pod = await _started(provider, numbers)
    await pod.exec(_EDIT)
    delta = await pod.changes()
    waiting = next(numbers)
    if warm:
        provider.prewarm([ours.request(_IMAGE, waiting)])
        await until_warm(provider, warm)
    command = asyncio.create_task(pod.exec("sleep 600"))
    await asyncio.sleep(_SETTLE_S)
    began = time.monotonic()
    kill_pod({"metadata": {"name": pod.name, "uid": pod.pod.metadata.uid}})
    try:
        await command
    except SandboxError:
        times.add(NOTICED, time.monotonic() - began)
    rebuilt = await ours.start(provider, _IMAGE, number=waiting)
    await rebuilt.apply(delta)
    await rebuilt.exec(["true"])
    times.add(subject, time.monotonic() - began)
    await rebuilt.close()


async def _started(provider: PodProvider, numbers: Iterator[int]) -> RunningPod:
    pod = await ours.start(provider, _IMAGE, number=next(numbers))
    pod.track()
    await pod.exec(["true"])
    return pod
