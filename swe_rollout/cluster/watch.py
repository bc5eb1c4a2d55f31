"""PodWatch: one watch for all pods of a run, which notifies the followers of single pods.

It recovers from every end of a watch: bookmarks keep the resource version fresh, a version that is
too old lists again, and a socket that is silent for longer than the bookmark interval counts as
dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from swe_rollout.cluster.api_error import TRANSIENT, ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS, Pod
from swe_rollout.cluster.responses import Change, UnreadableWatchError
from swe_rollout.errors import ClusterError, UnreachableError
from swe_rollout.text.logs import shared_context

log = structlog.get_logger()

_PAUSE_S = 1.0
"""The longest pause before resuming a watch; doubled per failure, up to `_MAX_PAUSE_S`. Watches
that end in an orderly way begin no more often."""
_MAX_PAUSE_S = 15.0


class PodFollower:
    """The current state of one pod, as the watch sees it."""

    def __init__(self, pod: Pod | None) -> None:
        self.pod = pod
        """Its newest state; None until the watch has seen it."""
        self.gone = False
        """Whether the pod was deleted for good."""
        self._changed = asyncio.Event()
        self._error: ClusterError | None = None

    async def changed(self) -> None:
        """Wait for the next change; raises ClusterError if the watch can't continue."""
        if self._error is None:
            await self._changed.wait()
            self._changed.clear()
        if self._error is not None:
            raise self._error

    def update(self, pod: Pod | None) -> None:
        """Record a new state, or None for a deletion, and wake up the waiter."""
        self.pod = pod or self.pod
        self.gone = pod is None
        self._changed.set()

    def fail(self, error: ClusterError) -> None:
        """Make current and later calls of `changed` raise `error`."""
        self._error = error
        self._changed.set()


class PodWatch:
    """The pods that a label selector matches, kept current until `aclose`."""

    def __init__(self, client: ClusterClient, *, namespace: str, selector: str) -> None:
        self._client = client
        self._namespace = namespace
        self._selector = selector
        self._pods: dict[str, Pod] = {}
        self._followers: dict[str, PodFollower] = {}
        self._version = ""
        self._task: asyncio.Task[None] | None = None
        self._error: ClusterError | None = None

    async def start(self) -> None:
        """List once, so that refusals are raised here, then watch in the background."""
        await self._list()
        self._task = asyncio.create_task(
            self._keep_watching(), name="pod-watch", context=shared_context()
        )

    def pod(self, uid: str) -> Pod | None:
        """Return the newest state of the pod; None if the watch does not know it (any more)."""
        return self._pods.get(uid)

    @contextmanager
    def follow(self, uid: str) -> Iterator[PodFollower]:
        """Follow one pod while the block runs."""
        follower = PodFollower(self._pods.get(uid))
        if self._error is not None:
            follower.fail(self._error)
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
        while True:
            retrying = AsyncRetrying(
                retry=retry_if_exception(_is_interruption),
                wait=wait_random_exponential(multiplier=_PAUSE_S, max=_MAX_PAUSE_S),
                before_sleep=_log_interruption,
            )
            began = time.monotonic()
            try:
                await retrying(self._list_and_watch)
            except ApiError as error:
                self._fail(error)
                return
            # A server or a proxy may end every watch at once.
            await asyncio.sleep(max(0.0, began + _PAUSE_S - time.monotonic()))

    async def _list_and_watch(self) -> None:
        """Watch until the watch ends in an orderly way or is too old; list first if necessary."""
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except ApiError as error:
            if error.gone or error.unauthorized:
                # After a 401, the list request is what renews the credentials.
                self._version = ""
            if not error.gone:
                raise

    async def _list(self) -> None:
        found = await self._client.list(PODS, self._namespace, labels=self._selector)
        pods = {pod.metadata.uid: pod for pod in found.items}
        for uid in self._pods.keys() - pods.keys():
            self._remove(uid)
        for pod in pods.values():
            self._update(pod)
        self._version = found.version

    async def _watch(self) -> None:
        """Process events until the server ends the watch in an orderly way."""
        watching = self._client.watch(
            PODS, self._namespace, version=self._version, labels=self._selector
        )
        try:
            async with aclosing(watching) as changes:
                async for change in changes:
                    self._process(change)
        except UnreadableWatchError:
            # What the line said is lost: list again to see the current state.
            self._version = ""
            raise

    def _process(self, change: Change[Pod]) -> None:
        self._version = change.version
        if change.object is None:
            return
        if change.deleted:
            self._remove(change.object.metadata.uid)
        else:
            self._update(change.object)

    def _update(self, pod: Pod) -> None:
        self._pods[pod.metadata.uid] = pod
        follower = self._followers.get(pod.metadata.uid)
        if follower is not None:
            follower.update(pod)

    def _remove(self, uid: str) -> None:
        self._pods.pop(uid, None)
        follower = self._followers.get(uid)
        if follower is not None:
            follower.update(None)

    def _fail(self, error: ClusterError) -> None:
        log.error("pod_watch_refused", reason=str(error))
        self._error = error
        for follower in self._followers.values():
            follower.fail(error)


def _is_interruption(error: BaseException) -> bool:
    """Whether the watch can be resumed after this error."""
    if isinstance(error, ApiError):
        return error.code in TRANSIENT or error.unauthorized
    # Whatever else responded with something that is no list of pods may not do so again.
    return isinstance(error, UnreachableError | ClusterError)


def _log_interruption(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("pod_watch_interrupted", reason=f"{type(error).__name__}: {error}")
