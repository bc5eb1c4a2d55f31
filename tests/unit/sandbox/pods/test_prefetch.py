"""What a prefetch leaves behind. Pulls are in tests/cluster/test_prefetch.py."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from kube_api import KubeApi, pod
from swe_rollout.sandbox.pods import prefetch as prefetching
from swe_rollout.sandbox.pods.prefetch import PrefetchedImage, prefetch
from swe_rollout.spec.sandbox import PodSandbox
from unit.conftest import Connect


class Cluster(KubeApi):
    """Cancels the prefetch as soon as it has made its DaemonSet, if it is told to."""

    cancels: asyncio.Task[Any] | None = None

    def created(self, new: dict[str, Any]) -> None:
        if "prefetch" in new["metadata"]["name"] and self.cancels is not None:
            self.cancels.cancel()

    @property
    def left(self) -> list[str]:
        return [name for kind, _, name in self.objects if kind == "daemonsets"]


def daemon_set(name: str, *, created: str, seconds: str) -> dict[str, Any]:
    labels = {prefetching._LABEL: name, prefetching._SECONDS: seconds}
    return pod(name, labels=labels, creationTimestamp=created)


async def prefetched(connect: Connect, cluster: Cluster) -> list[PrefetchedImage]:
    client = await connect(cluster.respond)
    sandbox = PodSandbox(namespace="default")
    return [each async for each in prefetch(client, ["image:1"], sandbox, within_s=0)]


async def test_it_deletes_its_own_and_what_killed_ones_left(connect: Connect) -> None:
    now = datetime.now(UTC).isoformat()
    old = "2020-01-01T00:00:00Z"
    cluster = Cluster(
        daemonsets=[
            daemon_set("killed", created=old, seconds="900"),
            daemon_set("running", created=now, seconds="900"),
            daemon_set("strange", created=old, seconds="soon"),
        ]
    )
    assert [each.image for each in await prefetched(connect, cluster)] == ["image:1"]
    assert cluster.left == ["running", "strange"]


async def test_it_leaves_nothing_when_it_is_stopped_before_the_response(connect: Connect) -> None:
    cluster = Cluster()
    running = cluster.cancels = asyncio.create_task(prefetched(connect, cluster))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cluster.left == []
