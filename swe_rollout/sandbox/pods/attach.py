"""Attach to the pod of a process that died: return that very sandbox, or none.

Its supervisor waits for two minutes. It is asked, under a key that only processes of the job can
derive, how much was done in it: the number in the mark, with nothing running, proves that no
operation has begun since. Whoever attaches first claims the pod with the run's label; another
process that still uses the pod then sees it as deleted.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from swe_rollout.cluster.objects import PODS, Pod
from swe_rollout.errors import ClusterError, SandboxError, UnreachableError
from swe_rollout.sandbox.base import SandboxMark, SandboxRequest
from swe_rollout.sandbox.pods import diagnose, pod_spec
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod, open_session
from swe_rollout.sandbox.session.channel import StreamLostError
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.sandbox.session.session import Session

log = structlog.get_logger()

ATTACH_S: Final = 20.0
"""Time limit of the whole attempt; starting a fresh pod with the same files takes seconds."""
_GREETING_S: Final = 5.0
_STREAMS_S: Final = 8.0
"""How long to keep reopening streams that the network lost."""
_POLL_S: Final = 0.1
_NOT_THE_SAME: Final = "the sandbox is not as it was"


@dataclass(frozen=True, slots=True)
class PodAttachment:
    """One attempt to attach to the sandbox of a mark."""

    runtime: PodRuntime
    owner: pod_spec.RunIdentity
    request: SandboxRequest
    mark: SandboxMark
    life: SessionLife

    async def run(self, *, delta: int) -> RunningPod | None:
        """Return the sandbox as it was at the mark, or None where that can't be proved."""
        try:
            async with asyncio.timeout(ATTACH_S):
                return await self._run(delta)
        except (SandboxError, ClusterError, UnreachableError) as error:
            why = str(error)
        except TimeoutError:
            why = f"it took longer than {ATTACH_S:g} s"
        log.info("sandbox_not_attached", pod=self.mark.name, why=why)
        return None

    async def _run(self, delta: int) -> RunningPod:
        async with AsyncExitStack() as cleanup:
            pod = await self._taken(cleanup)
            session = await self._session(pod)
            running = RunningPod(pod, session, self.runtime, request_name=self._name)
            cleanup.push_async_callback(running.close)
            await self._check(session)
            if self.request.snapshots:
                session.follow(delta)
            cleanup.pop_all()
        log.info("sandbox_attached", pod=running.name, effects=self.mark.effects)
        return running

    @property
    def _name(self) -> str:
        return pod_spec.pod_name(self.request, self.owner)

    async def _taken(self, cleanup: AsyncExitStack) -> Pod:
        """Claim the pod for this run; `cleanup` deletes it from then on."""
        client, namespace = self.runtime.client, self.runtime.namespace
        found = await client.get(PODS, namespace, self.mark.name)
        if why := self._why_not(found):
            raise SandboxError(_NOT_THE_SAME, why=why)
        self.runtime.attached.add(found.metadata.uid)
        # If another process was faster, this is refused, and the pod belongs to that process.
        patch = pod_spec.take_patch(found, self.owner)
        taken = await client.patch(PODS, namespace, self.mark.name, patch)
        cleanup.push_async_callback(self.runtime.reaper.delete, taken)
        return taken

    def _why_not(self, pod: Pod) -> str:
        labels = pod.metadata.labels
        wanted = pod_spec.episode_labels(self.request) | {
            pod_spec.JOB_LABEL: pod_spec.label_value(self.request.episode.job)
        }
        if pod.metadata.uid != self.mark.uid:
            return "another pod has its name"
        if not wanted.items() <= labels.items():
            return "the pod is of another episode"
        if labels.get(pod_spec.RUN_LABEL) in (None, self.owner.run):
            return "this process has ended it"
        if pod.metadata.deletion_timestamp is not None or not diagnose.is_ready(pod):
            return "the pod has ended"
        error = diagnose.loss_error(pod)
        return "" if error is None else str(error)

    async def _session(self, pod: Pod) -> Session:
        """Open a session that continues the earlier one. A StreamLostError is retried."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(StreamLostError),
            stop=stop_after_delay(_STREAMS_S),
            wait=wait_exponential(multiplier=_POLL_S, max=1.0),
            reraise=True,
        )
        lives = (replace(self.life, tried=tried) for tried in count())

        async def attempt() -> Session:
            # The supervisor may have taken the stream before, whose greeting was lost.
            workdir, life = self.request.workdir, next(lives)
            return await open_session(
                pod, self.runtime, workdir=workdir, life=life, timeout_s=_GREETING_S
            )

        return await retrying(attempt)

    async def _check(self, session: Session) -> None:
        """Return once nothing runs, if nothing was begun since the mark that matters."""
        if self.mark.effects < 0:
            return
        while True:
            state = await session.state()
            if state is None or state.effects != self.mark.effects:
                raise SandboxError(_NOT_THE_SAME, why="something was begun in it since")
            if not state.running:
                return
            await asyncio.sleep(_POLL_S)
