"""Sandboxes as Kubernetes pods: one pod, one exec stream, one supervisor for each.

What a pod is made of is in `pod_spec`, how it comes up in `pod_launch`, the bytes in
`pod_channel`; commands and files are the `session`'s. Every pod of a provider carries its run
label: one watch sees them all, and what is left at the end is found by it and deleted. A closed
sandbox ends by itself; its pod is deleted a little later, with others (`pod_reaper`).
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox import diagnose, pod_spec
from swe_rollout.sandbox.base import MAX_DOWNLOAD_BYTES, MAX_OUTPUT_BYTES, ExecResult
from swe_rollout.sandbox.pod_channel import PodDial
from swe_rollout.sandbox.pod_launch import PodLaunch
from swe_rollout.sandbox.pod_reaper import PodReaper
from swe_rollout.sandbox.pod_template import check_template, with_template
from swe_rollout.sandbox.session import Session, supervisor_command

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from swe_rollout.cluster import manifests
    from swe_rollout.cluster.objects import NetworkPolicy, Pod
    from swe_rollout.sandbox.base import SandboxRequest
    from swe_rollout.spec.job import PodSandbox as PodOptions
    from swe_rollout.trajectory import EpisodeId

log = structlog.get_logger()

KEEPALIVE_S = 30.0
"""Between two signs of life on a stream; kubelets and load balancers end idle ones."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What the sandboxes of a provider share, once it is open."""

    client: ClusterClient
    watch: PodWatch
    reaper: PodReaper
    namespace: str
    names: set[str]
    """Of the sandboxes that are starting or running: each is one request's."""
    running: set[RunningPod] = field(default_factory=set)


class RunningPod:
    """A `Sandbox` in a pod."""

    def __init__(self, pod: Pod, session: Session, cluster: _Cluster) -> None:
        """Use `PodProvider.start`."""
        self._pod = pod
        self._session = session
        self._cluster = cluster
        self._closed = False
        cluster.running.add(self)
        self._keepalive = asyncio.create_task(
            _keep_alive(session), name=f"keepalive-{pod.metadata.name}"
        )

    @property
    def name(self) -> str:
        """The pod's name."""
        return self._pod.metadata.name

    @property
    def workdir(self) -> str:
        """Where commands start."""
        return self._session.workdir

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """What the command did; see `Sandbox.exec`."""
        return await self._session.exec(
            command, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, max_output=max_output
        )

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """The bytes of a file; see `Sandbox.read_file`."""
        return await self._session.read_file(path, max_bytes=max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file; see `Sandbox.write_file`."""
        await self._session.write_file(path, data, mode=mode)

    async def upload(self, local: Path, path: str) -> None:
        """Take a file or a tree into the pod; see `Sandbox.upload`."""
        await self._session.upload(local, path)

    async def download(
        self, path: str, local: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES
    ) -> None:
        """Bring a file or a tree from the pod; see `Sandbox.download`."""
        await self._session.download(path, local, max_bytes=max_bytes)

    async def close(self) -> None:
        """End the pod, which is deleted later. Idempotent; never raises for a pod that is lost."""
        if self._closed:
            return
        self._closed = True
        self._keepalive.cancel()
        try:
            await self._session.close()
        finally:
            self._cluster.reaper.take(self._pod)
            self._cluster.running.discard(self)
            self._cluster.names.discard(self.name)


def log_doubt(error: SandboxError) -> None:
    """What a provider does with a doubt where nobody else listens."""
    log.info("pod_may_not_start", why=str(error))


class PodProvider:
    """Starts one pod for each sandbox. Safe for concurrent calls."""

    def __init__(
        self,
        spec: PodOptions,
        *,
        job: str,
        owner: manifests.OwnerReference | None = None,
        on_doubt: Callable[[SandboxError], None] = log_doubt,
    ) -> None:
        """Nothing is asked of the cluster before the first `start`.

        With the `owner` on the cluster, its pods are deleted. `on_doubt` is told of a pod that is
        about to fail. PrerequisiteError when the template asks for what a sandbox can't have.
        """
        check_template(spec.template)
        self._spec = spec
        self._job = job
        self._owner = pod_spec.RunOwner(
            run=secrets.token_hex(6),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            job=owner,
        )
        self._on_doubt = on_doubt
        self._template_is_taken = not spec.template
        self._opening = asyncio.Lock()
        self._cluster: _Cluster | None = None

    async def start(self, request: SandboxRequest) -> RunningPod:
        """A ready sandbox; SandboxError or ClusterError with why and fix when it can't be had.

        PrerequisiteError and UnreachableError are the job's own: no other episode would fare
        better.
        """
        cluster = await self._opened()
        manifest = with_template(
            pod_spec.pod_manifest(request, self._spec, self._owner), self._spec.template
        )
        await self._try_template(cluster, manifest)
        name = manifest.metadata.name
        if name in cluster.names:
            raise SandboxError(
                f"the sandbox {name} is running already",
                why="the same episode, attempt and role were asked for twice",
                retryable=False,
            )
        launch = PodLaunch(
            cluster.client,
            cluster.watch,
            manifest,
            namespace=cluster.namespace,
            is_over=cluster.reaper.has_taken,
            on_doubt=self._on_doubt,
        )
        async with AsyncExitStack() as undo:
            cluster.names.add(name)
            undo.callback(cluster.names.discard, name)
            undo.push_async_callback(launch.undo)
            pod = await launch.run(start_s=self._spec.start_seconds)
            session = await _enter(pod, cluster, workdir=request.workdir)
            undo.pop_all()
        return RunningPod(pod, session, cluster)

    async def sweep(self, finished: Collection[EpisodeId]) -> None:
        """Delete the job's pods of `finished` episodes: nobody needs them any more.

        Pods of this provider are left to it.
        """
        cluster = await self._opened()
        selector = f"{pod_spec.JOB_LABEL}={pod_spec.label_value(self._job)}"
        done = {episode.digest for episode in finished}
        listed = await cluster.client.list_pods(cluster.namespace, selector)
        left = [
            pod
            for pod in listed.items or []
            if pod.metadata.labels.get(pod_spec.EPISODE_LABEL) in done
            and pod.metadata.labels.get(pod_spec.RUN_LABEL) != self._owner.run
        ]
        await asyncio.gather(*(cluster.reaper.delete(pod) for pod in left))

    async def aclose(self) -> None:
        """End what is still open, delete every pod of this run, close the connections."""
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        try:
            await asyncio.gather(*(sandbox.close() for sandbox in list(cluster.running)))
            await cluster.reaper.aclose()
        finally:
            await cluster.watch.aclose()
            await cluster.client.aclose()

    @property
    def _selector(self) -> str:
        return f"{pod_spec.RUN_LABEL}={self._owner.run}"

    async def _opened(self) -> _Cluster:
        async with self._opening:
            if self._cluster is None:
                self._cluster = await self._open()
            return self._cluster

    async def _open(self) -> _Cluster:
        async with AsyncExitStack() as undo:
            client = await ClusterClient.connect(self._spec.context)
            undo.push_async_callback(client.aclose)
            namespace = self._spec.namespace or client.namespace
            watch = PodWatch(client, namespace=namespace, selector=self._selector)
            try:
                await _cut_off(client, namespace)
                await watch.start()
            except ApiError as error:
                raise diagnose.first_contact(error) from error
            names: set[str] = set()
            reaper = PodReaper(
                client, watch, namespace=namespace, selector=self._selector, in_use=names
            )
            undo.pop_all()
        log.info("pod_provider_opened", job=self._job, namespace=namespace, run=self._owner.run)
        return _Cluster(client, watch, reaper, namespace, names)

    async def _try_template(
        self, cluster: _Cluster, manifest: manifests.PodManifest | manifests.TemplatedPod
    ) -> None:
        """Once, before the first pod: a template that is refused is the job's own mistake."""
        if self._template_is_taken:
            return
        try:
            await cluster.client.create_pod(cluster.namespace, manifest, dry_run=True)
        except ApiError as error:
            if error.invalid:
                raise PrerequisiteError(
                    "the API server refuses the pod template",
                    why=error.message,
                    fix="mend spec.sandbox.pod.template; `kubectl explain pod.spec` has the fields",
                ) from error
        self._template_is_taken = True


async def _enter(pod: Pod, cluster: _Cluster, *, workdir: str) -> Session:
    """A session with a supervisor in the pod."""
    dial = PodDial(pod, client=cluster.client, watch=cluster.watch)
    try:
        # When the supervisor has ended, nobody needs the pod: also when this process was killed.
        channel = await dial(supervisor_command(end_signal=pod_spec.END_SIGNAL))
    except SandboxError:
        await dial.close()
        raise
    session = await Session.open(channel, workdir=workdir, dial=dial)
    if not (await session.exec(["test", "-d", workdir], cwd="/")).ok:
        await session.close()
        raise SandboxError(
            f"the image has no folder {workdir}",
            why=f"looked for in pod {pod.metadata.name}",
            fix="correct the instance's workdir, or its image",
            retryable=False,
        )
    return session


async def _keep_alive(session: Session) -> None:
    """Ping until the session is lost; its callers are told by their own calls."""
    while True:
        await asyncio.sleep(KEEPALIVE_S)
        try:
            await session.ping()
        except SandboxError:
            return


async def _cut_off(client: ClusterClient, namespace: str) -> None:
    """See to it that sandboxes of the namespace reach nothing; raises when we can't."""
    try:
        policy = await client.get_network_policy(namespace, pod_spec.POLICY_NAME)
    except ApiError as error:
        if not error.not_found:
            raise
        policy = await _create_policy(client, namespace)
    if not policy.spec.denies_all:
        raise PrerequisiteError(
            "the NetworkPolicy of the sandboxes lets something through",
            why=f"{pod_spec.POLICY_NAME} in {namespace} is not what was created",
            fix=f"`kubectl -n {namespace} delete networkpolicy {pod_spec.POLICY_NAME}`: "
            "it is made anew",
        )


async def _create_policy(client: ClusterClient, namespace: str) -> NetworkPolicy:
    try:
        return await client.create_network_policy(namespace, pod_spec.deny_all_policy())
    except ApiError as error:
        if not error.already_exists:
            raise
    return await client.get_network_policy(namespace, pod_spec.POLICY_NAME)
