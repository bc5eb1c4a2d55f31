"""Time from the creation of a pod to its first command: ours against doing as little as possible.

The floor creates the same pod, follows it by a watch that is open already, and is done when the pod
is ready; with one exec of `true` over a WebSocket of its own it is the least that a first command
costs. Subjects take turns, one pod at a time, in a namespace made for the run.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AsyncExitStack

from tenacity import AsyncRetrying, TryAgain, stop_after_delay, wait_fixed

from rollout_dev.bench.common import Times, rounds
from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import Site, Stream, open_site
from rollout_dev.report import Report, option, program
from swe_rollout.cluster.exec import ExecTarget
from swe_rollout.cluster.objects import PODS
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox.pods import diagnose, pod_spec
from swe_rollout.sandbox.pods.provider import PodProvider

IMAGE = "swe-rollout/sandbox-base:local"
WARM = "swe-rollout, warm claim"
READY = "bare create + wait"
READY_EXEC = "bare create + wait + one exec"
GOAL = 1.5
"""The limit on our time to the first command, relative to a pod that is merely ready."""
_RUN = "bench-start"
_SETTLE_S = 1.0
"""A pause after each pod, so that no end or start affects the next figure."""
_POLL_S = 0.02
_WARM_WITHIN_S = 60.0


@program(
    option("--image", default=IMAGE, help="of the pods, present on the nodes"),
    quick="fewer rounds",
    kubeconfig=True,
)
async def main(given: Namespace) -> Report:
    """Measure ours and the floor."""
    times, image, count = Times(), given.image, 5 if given.quick else 15
    async with (
        open_site(given.kubeconfig, prefix="bench-start-", images=(image,)) as site,
        AsyncExitStack() as stack,
    ):
        note = await ours.without_policy_if_forbidden(site)
        provider = await stack.enter_async_context(ours.provider(site))
        selector = f"{pod_spec.RUN_LABEL}={_RUN}"
        watch = PodWatch(site.client, namespace=site.namespace, selector=selector)
        await watch.start()
        stack.push_async_callback(watch.aclose)
        numbers = itertools.count()
        await _ours(provider, image, numbers, Times())  # This opens the provider's connections.
        for number in rounds(count):
            await _ours(provider, image, numbers, times)
            await _bare(site, watch, image, times, name=f"bare-{number}")
        await _warm_claims(site, image, count, times)
    return _report(times, (note,) if note else ())


async def _ours(provider: PodProvider, image: str, numbers: Iterator[int], times: Times) -> None:
    began = time.monotonic()
    pod = await ours.start(provider, image, number=next(numbers))
    started = time.monotonic()
    await pod.exec(["true"])
    times.add(ours.NAME, time.monotonic() - began)
    times.add(f"{ours.NAME}, start alone", started - began)
    await pod.close()
    await asyncio.sleep(_SETTLE_S)


async def _bare(site: Site, watch: PodWatch, image: str, times: Times, *, name: str) -> None:
    manifest = ours.manifest(image, name=name, run=_RUN)
    began = time.monotonic()
    created = await site.client.create(PODS, site.namespace, manifest)
    with watch.follow(created.metadata.uid) as follower:
        while not diagnose.is_ready(follower.pod or created):
            await follower.changed()
    times.add(READY, time.monotonic() - began)
    target = ExecTarget(site.namespace, name, pod_spec.CONTAINER)
    stream = await Stream.open(site.client, target, ("sh", "-c", "/bin/true; echo done"))
    await stream.line()
    times.add(READY_EXEC, time.monotonic() - began)
    await stream.aclose()
    await site.client.delete(PODS, site.namespace, name, uid=created.metadata.uid, grace_s=1)
    await asyncio.sleep(_SETTLE_S)


async def _warm_claims(site: Site, image: str, count: int, times: Times) -> None:
    """Measure the time from a request to its first command, with a warm pod waiting for it."""
    async with ours.provider(site, warm=1) as provider:
        opening = await ours.start(provider, image)  # This opens the provider's connections.
        await opening.close()
        for index in rounds(count, "warm claim"):
            number = index + 1
            provider.prewarm([ours.request(image, number)])
            await until_warm(provider)
            await asyncio.sleep(_SETTLE_S)
            began = time.monotonic()
            pod = await ours.start(provider, image, number=number)
            await pod.exec(["true"])
            times.add(WARM, time.monotonic() - began)
            await pod.close()


async def until_warm(provider: PodProvider, count: int = 1) -> None:
    """Wait until so many pods are waiting for a request."""
    polling = AsyncRetrying(wait=wait_fixed(_POLL_S), stop=stop_after_delay(_WARM_WITHIN_S))
    async for attempt in polling:
        with attempt:
            if provider.warm < count:
                raise TryAgain


def _report(times: Times, notes: tuple[str, ...]) -> Report:
    ratios = {
        "ours_to_floor": times.ratio(ours.NAME, READY),
        "ours_to_bare_exec": times.ratio(ours.NAME, READY_EXEC),
    }
    if WARM in times.by_subject:
        ratios["warm_to_cold"] = times.ratio(WARM, ours.NAME)
    return Report(
        "sandbox_start",
        times.rows("pods"),
        ok=ratios["ours_to_floor"] <= GOAL,
        ratios=ratios,
        notes=(
            f"goal: pod create to first command at most {GOAL:g} times bare create + wait",
            *notes,
        ),
    )
