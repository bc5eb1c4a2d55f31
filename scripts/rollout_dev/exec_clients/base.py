"""The interface of every exec client: run one program in one container and return its result.

Used by `scripts/bench exec` and `scripts/conformance exec`. Peers are used at their best: bytes
instead of text, separate channels, exit codes by their own parser if they have one. A client may
raise anything; benchmark and conformance inspect the finished task.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import yaml
from kubernetes.config.kube_config import ConfigNode, KubeConfigMerger
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_fixed

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.images import recipe
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget
from swe_rollout.cluster.objects import PODS
from swe_rollout.errors import PrerequisiteError

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientTarget:
    """A container of a running pod, and the kubeconfig that reaches it."""

    kubeconfig: str
    """The path of one file."""
    context: str
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command as a client reports it."""

    exit_code: int | None
    """The exit code; None if the client does not report it."""
    stdout: bytes
    stderr: bytes = b""
    timed_out: bool = False
    stdout_bytes: int | None = None
    """Bytes written in total, if the client caps its output and counts."""


class Runner(Protocol):
    """A client bound to one container. `run` may be called concurrently."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        """Run a program; errors of the client are passed on."""
        ...

    async def aclose(self) -> None:
        """Release the client's connections."""
        ...


_THREADS = ThreadPoolExecutor(max_workers=256, thread_name_prefix="client")


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking `work` in a thread. Some clients hang for good: `program` then leaves."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and a namespace."""

    client: ClusterClient
    folder: Path
    """A folder for the files of this run."""
    kubeconfig: Path
    context: str
    namespace: str


@asynccontextmanager
async def open_site(
    kubeconfig: str | None, *, prefix: str, images: Sequence[str] = ()
) -> AsyncIterator[Site]:
    """Open a site in the cluster of `kubeconfig`, else of $KUBECONFIG or ~/.kube/config.

    Those of `images` that this repository builds are built and loaded if it is this checkout's dev
    cluster. While it is open, `$KUBECONFIG` names its file. Raises PrerequisiteError without a
    kubeconfig, or if an image can't be built.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        flat = folder / "kubeconfig"
        context = _flatten(kubeconfig, flat)
        if _is_dev_cluster(flat):
            await in_thread(lambda: _load_images(images))
        stack.callback(_restore, os.environ.get("KUBECONFIG"))
        os.environ["KUBECONFIG"] = str(flat)
        client = await ClusterClient.connect()
        stack.push_async_callback(client.aclose)
        namespace = await _make_namespace(client, f"{prefix}{secrets.token_hex(3)}")
        if namespace != client.namespace:
            stack.push_async_callback(_delete_namespace, client, namespace)
        yield Site(client, folder, flat, context, namespace)


def add_kubeconfig(path: Path) -> None:
    """Add the contexts of another file for clients that are opened from now on."""
    os.environ["KUBECONFIG"] += f"{os.pathsep}{path}"


def _is_dev_cluster(kubeconfig: Path) -> bool:
    own = Checkout.here().kubeconfig
    return own.is_file() and _server(own) == _server(kubeconfig)


def _server(kubeconfig: Path) -> str:
    """Return the address of the current context's API server."""
    content = yaml.safe_load(kubeconfig.read_text())
    contexts = {each["name"]: each["context"] for each in content["contexts"]}
    clusters = {each["name"]: each["cluster"] for each in content["clusters"]}
    return str(clusters[contexts[content["current-context"]]["cluster"]]["server"])


def _load_images(images: Sequence[str]) -> None:
    starts = {name: f"{recipe.read(name).image}:" for name in recipe.names()}
    starts["release-pairs"] = "swe-rollout/release-pairs/"
    names = [name for name, start in starts.items() if any(i.startswith(start) for i in images)]
    if not names:
        return
    command = [str(Checkout.here().root / "scripts" / "build-images"), "--load", *names]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise PrerequisiteError(
            f"the dev cluster does not have {' and '.join(images)}",
            why="scripts/build-images failed; its own message is above",
            fix=f"scripts/build-images --load {' '.join(names)}",
        )


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
    """Wait for the namespace's service account, without which no pod can be created."""
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
    """Replace the loader's own wrappers around list entries by plain values."""
    if isinstance(value, list):
        return [entry.value if isinstance(entry, ConfigNode) else entry for entry in value]
    return value


_SPARE = 8
"""How many pods per node are left to others."""


async def room_for(client: ClusterClient, *, most: int) -> int:
    """Count the free pods on all nodes, at most `most`; return `most` if nodes can't be listed."""
    try:
        nodes = await client.transport.request("GET", "/api/v1/nodes", doing="list nodes")
        pods = await client.transport.request("GET", "/api/v1/pods", doing="list all pods")
    except ApiError as error:
        if not error.forbidden:
            raise
        return most
    listed = json.loads(nodes)["items"]
    capacity = [int(node["status"]["allocatable"].get("pods", 0)) for node in listed]
    used = len(json.loads(pods)["items"])
    return max(1, min(most, sum(capacity) - used - _SPARE * len(capacity)))


ECHO: Final = ("cat",)
SHELL: Final = ("sh", "-c", "while read -r line; do /bin/true; echo done; done")
_STDIN = b"\0"
_STDOUT = 1


class Stream:
    """A raw WebSocket to a program in a pod: a line goes in, a line comes back."""

    def __init__(self, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = opened

    @classmethod
    async def open(
        cls, client: ClusterClient, target: ExecTarget, program: Sequence[str]
    ) -> Stream:
        """Start `program` in the container."""
        query = [("command", word) for word in program]
        query += [("container", target.container), ("stdin", "true"), ("stdout", "true")]
        path = PODS.path(target.namespace, f"{target.pod}/exec", query)
        opened = await client.transport.websocket(
            path, doing=f"exec in {target.pod}", protocols=("v5.channel.k8s.io",)
        )
        return cls(opened)

    async def turn(self) -> None:
        """Send a line and wait for the reply."""
        await self._socket.send_bytes(_STDIN + b"true\n")
        await self.line()

    async def line(self) -> None:
        """Wait until the program has written a line."""
        while True:
            frame = await self._socket.receive_bytes()
            if frame[0] == _STDOUT and frame.endswith(b"\n"):
                return

    async def aclose(self) -> None:
        """Close the socket; the program then sees the end of its stdin."""
        await self._socket.close()
