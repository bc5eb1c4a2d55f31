"""RunningPod: a sandbox in a ready pod, and the runtime that the pods of one provider share.

`launch` brings pods up, `provider` and `warm_pool` decide which; `session` runs commands and
transfers files.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Sandbox, SandboxMark
from swe_rollout.sandbox.pods.channel import PodStreamOpener
from swe_rollout.sandbox.pods.pod_spec import CONTAINER, GRADER_CONTAINER
from swe_rollout.sandbox.pods.reaper import PodReaper, VacatedPod
from swe_rollout.sandbox.session.keys import SessionKeys, SessionLife
from swe_rollout.sandbox.session.session import Session

KEEPALIVE_S = 30.0
"""The pause between two pings on a stream; kubelets and load balancers end idle streams."""
_SHARED_FILES: Final = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
"""One file for all containers of a pod, each."""


@dataclass(frozen=True, slots=True)
class PodRuntime:
    """The connections and registries that all pods of an open provider share."""

    client: ClusterClient
    watch: PodWatch
    reaper: PodReaper
    namespace: str
    names: set[str]
    """Names of the sandboxes that are starting or running; each belongs to one request."""
    keys: SessionKeys | None = None
    """Keys by which another process of the job can attach to the pods; None if none can."""
    attached: set[str] = field(default_factory=set)
    """Uids of pods that were used before: by another process, or by an agent before its grader."""
    running: set[RunningPod] = field(default_factory=set)
    """Every pod with a session, including those that wait for a request."""


class RunningPod:
    """A `Sandbox` in a pod."""

    def __init__(
        self, pod: Pod, session: Session, runtime: PodRuntime, *, request_name: str = ""
    ) -> None:
        """Use `PodProvider.start`; `request_name` becomes free again when this is closed."""
        self.pod = pod
        """The pod as it was when the sandbox was returned."""
        self._session = session
        self.exec = session.exec
        self.read_file = session.read_file
        self.write_file = session.write_file
        self.end_processes = session.end_processes
        self.track = session.track
        self.record = session.record
        self.changes = session.changes
        self.apply = session.apply
        self._runtime = runtime
        self._request_name = request_name
        self._closed = False
        self._shared_files: bytes | None = None
        """Known where a grader's container waits beside this one."""
        self.is_warm = False
        """Whether the pod was up before it was requested."""
        runtime.running.add(self)
        self._keepalive = asyncio.create_task(
            _keep_alive(session), name=f"keepalive-{pod.metadata.name}"
        )

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.metadata.name

    @property
    def workdir(self) -> str:
        return self._session.workdir

    async def mark(self) -> SandboxMark | None:
        if self._runtime.keys is None:
            return None
        state = await self._session.state()
        uid = self.pod.metadata.uid
        return None if state is None else SandboxMark(self.name, uid, state.effects)

    async def close(self) -> None:
        """End the pod, which the reaper deletes later. Idempotent; never raises for a lost pod."""
        if self._closed:
            return
        self._closed = True
        self._keepalive.cancel()
        try:
            await self._session.close()
        finally:
            self._runtime.reaper.add(self.pod, vacated=self._vacated())
            self._runtime.running.discard(self)
            self._runtime.names.discard(self._request_name)

    def assign(self, pod: Pod, *, request_name: str, workdir: str) -> None:
        """Become the sandbox of a later request; `pod` is the same pod with its new labels."""
        self.pod = pod
        self.is_warm = True
        self._request_name = request_name
        self._session.workdir = workdir

    async def check_workdir(self) -> None:
        """Check that the workdir exists; SandboxError when the image does not have it."""
        await self._session.check_workdir(f"it was not found in pod {self.name}")

    async def prepare_grading(self) -> None:
        """Remember, before the agent begins, what it shares with its grader's container, if any."""
        if self.pod.container_of(GRADER_CONTAINER) is not None:
            self._shared_files = await shared_files(self)

    def _vacated(self) -> VacatedPod | None:
        if self._shared_files is None:
            return None
        return VacatedPod(self.pod, self._request_name, self._shared_files)


async def shared_files(sandbox: Sandbox) -> bytes:
    """Read the files that all containers of a pod share and may change."""
    return (await sandbox.exec(["cat", *_SHARED_FILES], cwd="/")).stdout


async def open_session(
    pod: Pod,
    runtime: PodRuntime,
    *,
    workdir: str,
    life: SessionLife | None = None,
    timeout_s: float = 30.0,
    container: str = CONTAINER,
) -> Session:
    """Open a session in the pod; commands start in `workdir`.

    The first session starts a supervisor, which becomes process 1, so the pod ends with it, even if
    this process is killed. A session with a `life` continues that of another process.
    """
    is_first = life is None
    if life is None:
        # A second container has another key: no frame of the first one fits there.
        keys = runtime.keys if container == CONTAINER else None
        life = SessionLife(None if keys is None else keys.of(pod.metadata.uid))
    opener = PodStreamOpener(pod, client=runtime.client, watch=runtime.watch, container=container)
    async with AsyncExitStack() as cleanup:
        cleanup.push_async_callback(opener.close)
        channel = await opener.open(first=is_first)
        cleanup.pop_all()
    return await Session.open(
        channel, workdir=workdir, opener=opener, timeout_s=timeout_s, life=life
    )


async def _keep_alive(session: Session) -> None:
    """Ping until the session is lost; callers learn of that from their own calls."""
    while True:
        await asyncio.sleep(KEEPALIVE_S)
        try:
            await session.ping()
        except SandboxError:
            return
