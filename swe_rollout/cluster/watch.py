"""PodWatch: one watch for all pods of a run, told to whoever follows one of them.

Survives what watches die of: bookmarks keep the version fresh, a version that is too old lists
again, and a socket that is silent for longer than bookmarks take counts as dead.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import structlog

from swe_rollout.cluster.api_error import TRANSIENT, ApiError, api_error
from swe_rollout.cluster.client import pods_path
from swe_rollout.cluster.objects import Pod, Status
from swe_rollout.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from swe_rollout.cluster.client import ClusterClient

log = structlog.get_logger()

_DOING = "watch pods"
_PAUSE_S = 1.0
"""Before an interrupted watch goes on; doubled while it fails again, up to `_MAX_PAUSE_S`."""
_MAX_PAUSE_S = 15.0


class _Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Follower:
    """One pod as the watch sees it."""

    def __init__(self, pod: Pod | None) -> None:
        self.pod = pod
        """Its newest state; none until the watch has seen it."""
        self.gone = False
        """Whether it was deleted for good."""
        self._news = asyncio.Event()
        self._broken: ApiError | None = None

    async def changed(self) -> None:
        """Wait until there is news; raises ApiError when the watch can't go on."""
        if self._broken is None:
            await self._news.wait()
            self._news.clear()
        if self._broken is not None:
            raise self._broken

    def _tell(self, pod: Pod | None) -> None:
        self.pod = pod or self.pod
        self.gone = pod is None
        self._news.set()

    def _break(self, error: ApiError) -> None:
        self._broken = error
        self._news.set()


class PodWatch:
    """The pods a label selector names, kept current until `aclose`."""

    def __init__(self, client: ClusterClient, *, namespace: str, selector: str) -> None:
        self._client = client
        self._namespace = namespace
        self._selector = selector
        self._pods: dict[str, Pod] = {}
        self._followers: dict[str, Follower] = {}
        self._version = ""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """List once, so that refusals are raised here, then watch in the background."""
        await self._list()
        self._task = asyncio.create_task(self._keep_watching(), name="pod-watch")

    def pod(self, uid: str) -> Pod | None:
        """The newest state of the pod; none when the watch does not know it, or no more."""
        return self._pods.get(uid)

    @contextmanager
    def follow(self, uid: str) -> Iterator[Follower]:
        """News of one pod while the block runs."""
        follower = Follower(self._pods.get(uid))
        self._followers[uid] = follower
        try:
            yield follower
        finally:
            del self._followers[uid]

    async def aclose(self) -> None:
        """Stop watching. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_watching(self) -> None:
        pause_s = _PAUSE_S
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                pause_s = _PAUSE_S
            except ApiError as error:
                # After a 401, the list is what renews the credentials.
                self._version = "" if error.gone or error.unauthorized else self._version
                if error.gone:
                    continue
                if error.code not in TRANSIENT and not error.unauthorized:
                    self._break(error)
                    return
                self._interrupted(error)
            except (aiohttp.ClientError, TimeoutError, UnreachableError) as error:
                self._interrupted(error)
            else:
                continue
            await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - spreads load
            pause_s = min(_MAX_PAUSE_S, pause_s * 2)

    async def _list(self) -> None:
        found = await self._client.list_pods(self._namespace, self._selector)
        pods = {pod.metadata.uid: pod for pod in found.items or []}
        for uid in self._pods.keys() - pods.keys():
            self._forget(uid)
        for pod in pods.values():
            self._saw(pod)
        self._version = found.metadata.resource_version

    async def _watch(self) -> None:
        """Take in events until the server ends the watch in an orderly way."""
        path = pods_path(
            self._namespace,
            query={
                "watch": "1",
                "labelSelector": self._selector,
                "resourceVersion": self._version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(random.randint(300, 600)),  # noqa: S311 - spreads load
            },
        )
        async with self._client.transport.lines(path, doing=_DOING) as stream:
            async for line in read_lines(stream):
                self._take(msgspec.json.decode(line, type=_Event))

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            raise api_error(_DOING, status.code, bytes(event.object))
        pod = msgspec.json.decode(event.object, type=Pod)
        self._version = pod.metadata.resource_version
        match event.type:
            case "ADDED" | "MODIFIED":
                self._saw(pod)
            case "DELETED":
                self._forget(pod.metadata.uid)
            case _:
                pass

    def _saw(self, pod: Pod) -> None:
        self._pods[pod.metadata.uid] = pod
        follower = self._followers.get(pod.metadata.uid)
        if follower is not None:
            follower._tell(pod)  # noqa: SLF001 - the two are one

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        follower = self._followers.get(uid)
        if follower is not None:
            follower._tell(None)  # noqa: SLF001 - the two are one

    def _break(self, error: ApiError) -> None:
        log.error("pod_watch_refused", reason=str(error))
        for follower in self._followers.values():
            follower._break(error)  # noqa: SLF001 - the two are one

    def _interrupted(self, error: Exception) -> None:
        log.warning("pod_watch_interrupted", reason=f"{type(error).__name__}: {error}")


async def read_lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of a streamed answer, of any length; `StreamReader.readline` refuses long ones."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
