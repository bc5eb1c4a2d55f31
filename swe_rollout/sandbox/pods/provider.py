"""PodProvider: sandboxes as Kubernetes pods, each with one exec stream and one supervisor.

`pod_spec` builds the manifest, `launch` brings the pod up, `channel` carries the bytes, `session`
runs commands and transfers files. Every pod of a provider carries its run label: one watch sees
them all, and at the end everything with that label is deleted. A closed sandbox ends by itself; its
pod is deleted a little later, together with others (`reaper`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_fixed

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS, Json, Metadata, OwnerReference, Pod
from swe_rollout.cluster.removal import delete_each
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import (
    ClusterError,
    PrerequisiteError,
    SandboxError,
    UnreachableError,
)
from swe_rollout.sandbox.base import Role, SandboxMark, SandboxRequest
from swe_rollout.sandbox.pods import diagnose, isolation, pod_spec
from swe_rollout.sandbox.pods.attach import PodAttachment
from swe_rollout.sandbox.pods.grader_container import take_over
from swe_rollout.sandbox.pods.launch import PodLaunch, start_pod
from swe_rollout.sandbox.pods.reaper import PodReaper
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod
from swe_rollout.sandbox.pods.warm_pool import WarmPool
from swe_rollout.sandbox.pods.warm_spec import WARM_LABEL
from swe_rollout.sandbox.session.keys import SessionKeys, SessionLife
from swe_rollout.spec.sandbox import PodSandbox as PodOptions
from swe_rollout.types.episode import EpisodeId

log = structlog.get_logger()

SCARCE_RETRY_S = 10.0
"""How long a start is retried after waiting pods made room for it."""
SCARCE_POLL_S = 0.5
_SELECTED = 64
"""Up to so many episodes, the API server selects their pods; for more, all of the job are read."""


def _log_start_warning(error: SandboxError) -> None:
    log.info("pod_start_delayed", why=str(error))


class PodProvider:
    """Starts a pod for each sandbox. Safe for concurrent calls."""

    def __init__(
        self,
        spec: PodOptions,
        *,
        job: str,
        owner: OwnerReference | None = None,
        on_start_warning: Callable[[SandboxError], None] | None = None,
        keys: SessionKeys | None = None,
    ) -> None:
        """Send no request before the first `start`. With `keys`, `attach` can find pods again.

        The pods are deleted with their `owner`. `on_start_warning` is called with the error that a
        pod is about to fail with; by default it is logged.
        """
        self._spec = spec
        self._job = job
        self._owner = pod_spec.RunIdentity(
            run=secrets.token_hex(6),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            job=owner,
        )
        self._on_start_warning = on_start_warning or _log_start_warning
        self._keys = keys
        self._is_template_valid = spec.template is None
        self._opening = asyncio.Lock()
        self._runtime: PodRuntime | None = None
        self._pool: WarmPool | None = None
        self._expected: Sequence[SandboxRequest] = ()

    async def start(self, request: SandboxRequest) -> RunningPod:
        """Start a sandbox; raises SandboxError or ClusterError, with why and fix.

        PrerequisiteError and UnreachableError concern the whole job: every other episode would fail
        the same way.
        """
        runtime = await self._open()
        async with AsyncExitStack() as cleanup:
            self._reserve_name(runtime, request, cleanup)
            try:
                pod = await self._take_over(runtime, request)
                if pod is None:
                    pod = await self._claim_or_launch(runtime, request)
            except ApiError as error:
                if error.lacks_right:
                    raise diagnose.setup_error(error) from error
                raise
            if request.grading_s:
                cleanup.push_async_callback(pod.close)
                await pod.prepare_grading()
            cleanup.pop_all()
        if request.snapshots:
            pod.track()
        return pod

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> RunningPod | None:
        if self._keys is None:
            return None
        try:
            runtime = await self._open()
        except (ClusterError, PrerequisiteError, UnreachableError):
            return None  # The docstring of `start` says so.
        session = SessionLife(self._keys.of(mark.uid), life)
        attachment = PodAttachment(runtime, self._owner, request, mark, session)
        async with AsyncExitStack() as cleanup:
            self._reserve_name(runtime, request, cleanup)
            pod = await attachment.run(delta=delta)
            if pod is not None:
                cleanup.pop_all()
        return pod

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Start waiting pods for the first of these requests, if the spec has warm pods."""
        if self._spec.warm.cap:
            # The grader of an expected agent follows in the agent's pod.
            known = tuple(requests)
            agents = {(each.episode, each.attempt) for each in known if each.grading_s}
            self._expected = tuple(
                each
                for each in known
                if each.role is Role.AGENT or (each.episode, each.attempt) not in agents
            )
        if self._pool is not None:
            self._pool.prewarm(self._expected)

    @property
    def warm(self) -> int:
        """Number of waiting pods that could be claimed now."""
        return 0 if self._pool is None else self._pool.ready

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """Delete the pods that the job's earlier runs left for `episodes`.

        Their waiting pods are deleted too if they have ended.
        """
        runtime = await self._open()
        digests = {episode.digest for episode in episodes}
        of_job = f"{pod_spec.JOB_LABEL}={pod_spec.label_value(self._job)}"
        selectors = [of_job]
        if len(digests) <= _SELECTED:
            # Each episode that is resumed asks for its own pods, and a job may have thousands.
            selectors = [f"{of_job},{WARM_LABEL}"]
            if digests:
                few = ",".join(sorted(digests))
                selectors.append(f"{of_job},{pod_spec.EPISODE_LABEL} in ({few})")

        def orphan(pod: Pod) -> Metadata | None:
            return pod.metadata if self._is_orphan(pod, digests) else None

        for selector in selectors:
            try:
                await delete_each(
                    runtime.client,
                    PODS,
                    runtime.namespace,
                    labels=selector,
                    chosen=orphan,
                    grace_s=1,
                )
            except ApiError as error:
                log.warning("orphans_not_deleted", selector=selector, why=str(error))

    async def aclose(self) -> None:
        """End open sandboxes, delete every pod of this run, close the connections."""
        runtime, self._runtime = self._runtime, None
        pool, self._pool = self._pool, None
        if runtime is None:
            return
        async with AsyncExitStack() as stack:
            # Each of them, whichever fails or is cancelled.
            stack.push_async_callback(runtime.client.aclose)
            stack.push_async_callback(runtime.watch.aclose)
            stack.push_async_callback(runtime.reaper.aclose)
            if pool is not None:
                await pool.aclose()
            await asyncio.gather(*(sandbox.close() for sandbox in list(runtime.running)))

    def _reserve_name(
        self, runtime: PodRuntime, request: SandboxRequest, cleanup: AsyncExitStack
    ) -> None:
        """Reserve the name of a starting sandbox; `cleanup` frees it."""
        name = pod_spec.pod_name(request, self._owner)
        if name in runtime.names:
            raise SandboxError(
                f"the sandbox {name} is running already",
                why="the same episode, attempt and role were requested twice",
                fix="close the running sandbox first, or number the attempt differently",
                retryable=False,
            )
        runtime.names.add(name)
        cleanup.callback(runtime.names.discard, name)

    def _is_orphan(self, pod: Pod, digests: Collection[str]) -> bool:
        labels = pod.metadata.labels
        if labels.get(pod_spec.RUN_LABEL) == self._owner.run:
            return False
        return labels.get(pod_spec.EPISODE_LABEL) in digests or (
            WARM_LABEL in labels and diagnose.loss_error(pod) is not None
        )

    async def _open(self) -> PodRuntime:
        """Return the runtime, opening it on the first call."""
        async with self._opening:
            if self._runtime is None:
                self._runtime = await self._open_runtime()
                if self._spec.warm.cap:
                    self._pool = WarmPool(
                        self._runtime, self._spec, job=self._job, owner=self._owner
                    )
                    self._pool.prewarm(self._expected)
            return self._runtime

    async def _open_runtime(self) -> PodRuntime:
        async with AsyncExitStack() as cleanup:
            client = await ClusterClient.connect(self._spec.context)
            cleanup.push_async_callback(client.aclose)
            namespace = self._spec.namespace or client.namespace
            selector = f"{pod_spec.RUN_LABEL}={self._owner.run}"
            watch = PodWatch(client, namespace=namespace, selector=selector)
            try:
                await isolation.ensure_isolation(client, namespace)
                await watch.start()
            except ApiError as error:
                raise diagnose.setup_error(error) from error
            names: set[str] = set()
            reaper = PodReaper(client, watch, namespace=namespace, selector=selector, in_use=names)
            cleanup.pop_all()
        log.info("pod_provider_opened", job=self._job, namespace=namespace, run=self._owner.run)
        return PodRuntime(client, watch, reaper, namespace, names, self._keys)

    async def _take_over(self, runtime: PodRuntime, request: SandboxRequest) -> RunningPod | None:
        """Return the sandbox that waits for a grader in its agent's pod, if it can be used."""
        if request.role is not Role.GRADER or request.part:
            return None
        agent = replace(request, role=Role.AGENT)
        vacated = runtime.reaper.take(pod_spec.pod_name(agent, self._owner))
        if vacated is None:
            return None
        name = pod_spec.pod_name(request, self._owner)
        try:
            return await take_over(vacated, runtime, request, request_name=name)
        except (SandboxError, ClusterError, UnreachableError, TimeoutError) as error:
            log.info("pod_not_taken_over", pod=vacated.pod.metadata.name, why=str(error))
            return None

    async def _claim_or_launch(self, runtime: PodRuntime, request: SandboxRequest) -> RunningPod:
        """Claim a waiting pod, or launch a new one, for which pods that only wait make room."""
        # Waiting pods have no network.
        if self._pool is not None and not pod_spec.is_networked(request, self._spec):
            pod = await self._pool.claim(request)
            if pod is not None:
                return pod
        try:
            return await self._launch(runtime, request)
        except SandboxError as error:
            if not error.scarce or not await self._make_room(runtime):
                raise
        # A quota counts a pod for a moment after the pod is gone.
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda e: isinstance(e, SandboxError) and e.scarce),
            stop=stop_after_delay(SCARCE_RETRY_S),
            wait=wait_fixed(SCARCE_POLL_S),
            reraise=True,
        )
        return await retrying(self._launch, runtime, request)

    async def _make_room(self, runtime: PodRuntime) -> bool:
        """End the pods that only wait, for tasks or graders; return whether there were any."""
        is_released = await runtime.reaper.release_vacated()
        return (self._pool is not None and await self._pool.release_all()) or is_released

    async def _launch(self, runtime: PodRuntime, request: SandboxRequest) -> RunningPod:
        manifest = pod_spec.with_template(
            pod_spec.pod_manifest(request, self._spec, self._owner), self._spec.template
        )
        if not self._is_template_valid:
            await self._validate_template(runtime, manifest)
        launch = PodLaunch(
            runtime,
            manifest,
            on_start_warning=self._on_start_warning,
            request_name=manifest["metadata"]["name"],
        )
        return await start_pod(
            launch,
            start_s=self._spec.start_seconds,
            workdir=request.workdir,
            ready=RunningPod.check_workdir,
        )

    async def _validate_template(self, runtime: PodRuntime, manifest: Json) -> None:
        """Dry-run the first pod, once: a template that is refused is a mistake in the job."""
        async with self._opening:
            if self._is_template_valid:
                return
            try:
                await runtime.client.create(
                    PODS, runtime.namespace, manifest, strict=True, dry_run=True
                )
            except ApiError as error:
                if error.invalid:
                    raise PrerequisiteError(
                        "the API server refuses the pod template",
                        why=error.message,
                        fix="correct spec.sandbox.pod.template; `kubectl explain pod.spec` lists "
                        "the fields",
                    ) from error
            self._is_template_valid = True
