"""The cluster that clients are measured and judged on: one kubeconfig file, one namespace.

The namespace is created for the run and deleted with everything in it; without the right to create
one, the context's own is used and the pods are deleted one by one.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.config.kube_config import ConfigNode, KubeConfigMerger
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_fixed

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.errors import PrerequisiteError


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and a namespace."""

    client: ClusterClient
    folder: Path
    """For files of this run."""
    kubeconfig: Path
    context: str
    namespace: str


@asynccontextmanager
async def open_site(kubeconfig: str | None, *, prefix: str) -> AsyncIterator[Site]:
    """Open a site in the cluster of `kubeconfig`, else of $KUBECONFIG or ~/.kube/config.

    While it is open, `$KUBECONFIG` names its file. Raises PrerequisiteError without a kubeconfig.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        flat = folder / "kubeconfig"
        context = _flatten(kubeconfig, flat)
        stack.callback(_restore, os.environ.get("KUBECONFIG"))
        os.environ["KUBECONFIG"] = str(flat)
        client = await ClusterClient.connect()
        stack.push_async_callback(client.aclose)
        namespace = await _make_namespace(client, f"{prefix}{secrets.token_hex(3)}")
        if namespace != client.namespace:
            stack.push_async_callback(_delete_namespace, client, namespace)
        yield Site(client, folder, flat, context, namespace)


def add_kubeconfig(path: Path) -> None:
    """Add the contexts of one more file for clients that are opened from now on."""
    os.environ["KUBECONFIG"] += f"{os.pathsep}{path}"


def _restore(kubeconfig: str | None) -> None:
    if kubeconfig is None:
        os.environ.pop("KUBECONFIG", None)
    else:
        os.environ["KUBECONFIG"] = kubeconfig


async def _make_namespace(client: ClusterClient, name: str) -> str:
    body = json.dumps({"metadata": {"name": name}}).encode()
    try:
        await client.transport.request(
            "POST", "/api/v1/namespaces", doing="create a namespace", body=body
        )
    except ApiError as error:
        if not error.forbidden:
            raise
        return client.namespace
    await _await_account(client, name)
    return name


async def _await_account(client: ClusterClient, namespace: str) -> None:
    """Wait for the namespace's service account: no pod can be created before."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    polling = AsyncRetrying(
        retry=retry_if_exception(_is_missing),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(10),
        reraise=True,
    )
    # Without the right to read it, or after the wait, the first pod reports the problem.
    with suppress(ApiError):
        async for attempt in polling:
            with attempt:
                await client.transport.request("GET", path, doing="read the service account")


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.not_found


async def _delete_namespace(client: ClusterClient, name: str) -> None:
    await client.transport.request(
        "DELETE", f"/api/v1/namespaces/{name}", doing="delete the namespace"
    )


def _flatten(named: str | None, to: Path) -> str:
    """Write a kubeconfig to one self-contained file; return its current context."""
    paths = named or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    merger = KubeConfigMerger(paths)  # type: ignore[no-untyped-call]
    content = merger.config.value if merger.config is not None else {}
    if not content.get("current-context"):
        raise PrerequisiteError(
            "no kubeconfig with a current context was found",
            why=f"looked at {paths}",
            fix="name one by --kubeconfig or KUBECONFIG",
        )
    to.touch(mode=0o600)
    to.write_text(yaml.safe_dump({key: _plain(value) for key, value in content.items()}))
    return str(content["current-context"])


def _plain(value: object) -> object:
    """Remove the loader's own wrappers around entries of lists."""
    if isinstance(value, list):
        return [entry.value if isinstance(entry, ConfigNode) else entry for entry in value]
    return value
