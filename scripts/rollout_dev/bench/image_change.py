"""Time until ready: a waiting pod whose image is changed in place, against a new pod.

`spec.containers[].image` can be changed while a pod runs: the kubelet ends the container and starts
one of the new image in the same pod, without scheduling or network set-up. The restart count tells
whether the new one is up: the status may name the image differently than the spec does. The images
are on the node. `docs/adr/0007-warm-pods.md` draws the conclusion.
"""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from rollout_dev.bench.common import Times, rounds
from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import Site, open_site
from rollout_dev.report import Report, option, program
from swe_rollout.cluster.objects import PODS, Json, Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox.pods import diagnose, pod_spec

IMAGE: Final = "swe-rollout/sandbox-base:local"
GENERIC: Final = "swe-rollout/busybox:local"
MADE: Final = "new pod"
CHANGED: Final = "image changed in place"
OBEDIENT: Final = "image changed in place, process 1 ends on TERM"
_OBEDIENT_IDLE: Final = ("/bin/sh", "-c", 'trap "exit 143" TERM; sleep 2147483647 & wait')
_RUN: Final = "bench-image"
_WITHIN_S: Final = 30.0
_SETTLE_S: Final = 1.5
"""Time for the kubelet to finish its work after a start or an end."""


@dataclass(frozen=True, slots=True)
class _Pods:
    """Creates pods in the site's namespace and watches them."""

    site: Site
    watch: PodWatch

    async def create(self, manifest: Json) -> Pod:
        """Create a pod and wait until it is ready."""
        created = await self.site.client.create(PODS, self.site.namespace, manifest)
        return await self.ready(created, min_restarts=0)

    async def ready(self, pod: Pod, *, min_restarts: int) -> Pod:
        """Wait until a container that was restarted at least `min_restarts` times is ready."""
        with self.watch.follow(pod.metadata.uid) as follower:
            async with asyncio.timeout(_WITHIN_S):
                while True:
                    now = follower.pod or pod
                    found = now.container
                    if found and found.restart_count >= min_restarts and diagnose.is_ready(now):
                        return now
                    await follower.changed()

    async def delete(self, pod: Pod) -> None:
        """Delete the pod and wait for the kubelet to settle."""
        name, uid = pod.metadata.name, pod.metadata.uid
        await self.site.client.delete(PODS, self.site.namespace, name, uid=uid, grace_s=1)
        await asyncio.sleep(_SETTLE_S)

    async def time_new(self, image: str, number: int) -> float:
        """Return the seconds from the creation of a pod until it is ready."""
        began = time.monotonic()
        pod = await self.create(ours.manifest(image, name=f"made-{number}", run=_RUN))
        took_s = time.monotonic() - began
        await self.delete(pod)
        return took_s

    async def time_change(self, image: str, number: int, command: tuple[str, ...] = ()) -> float:
        """Return the seconds from the patch of a waiting pod until the new container is ready."""
        name = f"changed-{number}-{len(command)}"
        pod = await self.create(_with_command(ours.manifest(GENERIC, name=name, run=_RUN), command))
        await asyncio.sleep(_SETTLE_S)
        step = {"op": "replace", "path": "/spec/containers/0/image", "value": image}
        began = time.monotonic()
        patched = await self.site.client.patch(PODS, self.site.namespace, name, (step,))
        await self.ready(patched, min_restarts=1)
        took_s = time.monotonic() - began
        await self.delete(pod)
        return took_s


@program(
    option("--image", default=IMAGE, help="the new image, present on the nodes"),
    quick="fewer rounds",
    kubeconfig=True,
)
async def main(given: Namespace) -> Report:
    """Measure both kinds of pods."""
    times, image = Times(), given.image
    async with (
        open_site(given.kubeconfig, prefix="bench-image-", images=(image, GENERIC)) as site,
        AsyncExitStack() as stack,
    ):
        selector = f"{pod_spec.RUN_LABEL}={_RUN}"
        watch = PodWatch(site.client, namespace=site.namespace, selector=selector)
        await watch.start()
        stack.push_async_callback(watch.aclose)
        pods = _Pods(site, watch)
        for number in rounds(5 if given.quick else 15):
            times.add(MADE, await pods.time_new(image, number))
            times.add(CHANGED, await pods.time_change(image, number))
            times.add(OBEDIENT, await pods.time_change(image, number, _OBEDIENT_IDLE))
    return Report(
        "image_change",
        times.rows("pods"),
        ok=True,
        ratios={
            "changed_to_made": times.ratio(CHANGED, MADE),
            "obedient_to_made": times.ratio(OBEDIENT, MADE),
        },
        notes=(
            "images are on the node; the pods have the sandbox's own spec",
            "a sandbox's process 1 ignores TERM, so that a command can't end the sandbox",
        ),
    )


def _with_command(manifest: Json, command: tuple[str, ...]) -> Json:
    (container,) = manifest["spec"]["containers"]
    if command:
        container = {**container, "command": command}
    return {**manifest, "spec": {**manifest["spec"], "containers": [container]}}
