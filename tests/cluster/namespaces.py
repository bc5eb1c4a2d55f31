"""Create and delete namespaces on the cluster, and wait for conditions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient


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
    body = json.dumps({"metadata": {"name": name, "labels": labels}}).encode()
    await client.transport.request("POST", "/api/v1/namespaces", doing="create", body=body)
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"

    async def has_account() -> bool:
        try:
            await client.transport.request("GET", path, doing="wait for the account")
        except ApiError:
            return False
        return True

    await until(has_account)


async def end_namespace(client: ClusterClient, name: str) -> None:
    """Start to delete the namespace with everything in it."""
    await client.transport.request("DELETE", f"/api/v1/namespaces/{name}", doing="delete")
