"""Sandboxes in pods of the cluster and their namespaces, for tests that need no operator."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from cluster.needs import BUSYBOX
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.types.episode import EpisodeId

JOB = "test-pods"
SAMPLES = itertools.count()


def pods(
    namespace: str = "default", *, memory: str = "256Mi", disk: str = "256Mi", **more: Any
) -> PodSandbox:
    """Return a spec of small pods that have to start within a minute."""
    resources = Resources(cpu="50m", memory=memory, ephemeral_storage=disk)
    spec = PodSandbox(namespace=namespace, resources=resources, start_seconds=60.0)
    return spec.model_copy(update=more)


def request(image: str = BUSYBOX, *, job: str = JOB, **changes: Any) -> SandboxRequest:
    """Return a unique request: an earlier pod of its name would have to be deleted first."""
    episode = EpisodeId(job, "one__one-1", next(SAMPLES))
    wanted = SandboxRequest(episode, Role.AGENT, image, "/root", deadline_s=900.0)
    return replace(wanted, **changes)


@asynccontextmanager
async def provided(spec: PodSandbox, *, job: str = JOB, **more: Any) -> AsyncIterator[PodProvider]:
    """Open a provider, which deletes what is left of its sandboxes."""
    provider = PodProvider(spec, job=job, **more)
    try:
        yield provider
    finally:
        await provider.aclose()


@asynccontextmanager
async def running(
    image: str = BUSYBOX, spec: PodSandbox | None = None, *, job: str = JOB, **changes: Any
) -> AsyncIterator[RunningPod]:
    """Start one sandbox."""
    async with provided(spec or pods(), job=job) as provider:
        sandbox = await provider.start(request(image, job=job, **changes))
        yield sandbox
        await sandbox.close()


async def until(true: Callable[[], Awaitable[bool] | bool], *, within_s: float = 120) -> None:
    """Return when the condition is true; AssertionError after `within_s`."""
    end = time.monotonic() + within_s
    while True:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < end, f"still false after {within_s} s"
        await asyncio.sleep(0.1)


async def make_namespace(client: ClusterClient, name: str, **labels: str) -> None:
    """Create a namespace and wait for its service account, without which no pod can start."""
    await post(client, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"

    async def has_account() -> bool:
        try:
            await client.transport.request("GET", path, doing="wait for the account")
        except ApiError:
            return False
        return True

    await until(has_account)


def at_once(work: Callable[[ClusterClient], Awaitable[None]]) -> None:
    """Do something with a client, where no event loop runs."""

    async def connected() -> None:
        client = await ClusterClient.connect()
        await work(client)
        await client.aclose()

    asyncio.run(connected())


async def end_namespace(client: ClusterClient, name: str) -> None:
    """Start to delete the namespace with everything in it."""
    await client.transport.request("DELETE", f"/api/v1/namespaces/{name}", doing="delete")


async def post(client: ClusterClient, path: str, document: object) -> Any:
    """Create an object of any kind, and return it."""
    body = json.dumps(document).encode()
    return json.loads(await client.transport.request("POST", path, doing="create", body=body))


async def read(client: ClusterClient, path: str) -> Any:
    """Read an object of any kind, with the fields that our client does not decode."""
    return json.loads(await client.transport.request("GET", path, doing="read"))
