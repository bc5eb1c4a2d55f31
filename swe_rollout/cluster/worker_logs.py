"""Logs of a job's workers: everything so far, or line by line as it is written.

Lines carry the kubelet's timestamps, so that after a lost connection no line is missed or repeated.
The command line filters the lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from swe_rollout.cluster.api_error import TRANSIENT, ApiError
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.cluster.objects import PODS, Pod
from swe_rollout.cluster.responses import read_lines
from swe_rollout.errors import UnreachableError

CONTAINER = "worker"
_RESUME_S = 1.0
"""The pause between two requests for the log of a running pod."""
_DISCOVERY_S = 2.0
"""The pause between two searches for new worker pods."""
_AT_ONCE = 16
_FINISHED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a worker's log."""

    time: str
    """RFC 3339, to the nanosecond."""
    pod: str
    text: str


async def read_logs(jobs: Jobs, namespace: str, name: str) -> tuple[LogLine, ...]:
    """Read everything that the job's workers have logged, in chronological order."""
    pods = await jobs.workers(namespace, name)
    limit = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_collect(_Tail(jobs, namespace, pod), limit) for pod in pods))
    return tuple(sorted((line for lines in found for line in lines), key=lambda line: line.time))


async def follow_logs(
    jobs: Jobs, namespace: str, name: str, *, on_line: Callable[[LogLine], None]
) -> None:
    """Pass on each line as it is written, also by later workers, until the job ends."""
    tails: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            job = await jobs.find(namespace, name)
            is_over = job is None or job.status.completion_time is not None
            for pod in await jobs.workers(namespace, name):
                if pod.metadata.uid not in tails:
                    tail = _Tail(jobs, namespace, pod)
                    tails[pod.metadata.uid] = asyncio.create_task(tail.follow(on_line))
            running = [task for task in tails.values() if not task.done()]
            if is_over and not running:
                break
            await _until_discovery(running)
    finally:
        for task in tails.values():
            task.cancel()
        await asyncio.gather(*tails.values(), return_exceptions=True)


class _Tail:
    """The log of one worker pod, read from the last line seen."""

    def __init__(self, jobs: Jobs, namespace: str, pod: Pod) -> None:
        self._client = jobs.client
        self._namespace = namespace
        self._pod = pod.metadata.name
        self.has_predecessor = pod.container is not None and pod.container.restart_count > 0
        """Whether its container was restarted in place."""
        self._seen = ""

    async def lines(self, *, follow: bool, of_predecessor: bool = False) -> AsyncIterator[LogLine]:
        """Yield the lines after the last one seen; none while the container has not started."""
        query = {"container": CONTAINER, "timestamps": "true", "follow": str(follow).lower()}
        if of_predecessor:
            query["previous"] = "true"
        if self._seen:
            query["sinceTime"] = self._seen
        path = PODS.path(self._namespace, f"{self._pod}/log", query)
        doing = f"read the log of pod {self._pod}"
        async with self._client.transport.lines(path, doing=doing) as stream:
            async for line in read_lines(stream):
                time, _, text = line.decode(errors="replace").partition(" ")
                if time > self._seen:
                    self._seen = time
                    yield LogLine(time, self._pod, text)

    async def follow(self, on_line: Callable[[LogLine], None]) -> None:
        """Pass on all lines until the pod ends, across lost connections and restarts."""
        while True:
            is_over = await self._is_over()
            try:
                async for line in self.lines(follow=not is_over):
                    on_line(line)
            except ApiError as error:
                if error.not_found:
                    return
                if not (error.invalid or error.unauthorized or error.code in TRANSIENT):
                    raise
            except UnreachableError:
                is_over = False  # what was cut off is read again
            if is_over:
                return
            await asyncio.sleep(_RESUME_S)

    async def _is_over(self) -> bool:
        pod = await self._client.find(PODS, self._namespace, self._pod)
        return pod is None or pod.status.phase in _FINISHED_PHASES


async def _until_discovery(running: Sequence[asyncio.Task[None]]) -> None:
    """Wait until it is time to search for new pods, or until a log has ended."""
    if not running:
        await asyncio.sleep(_DISCOVERY_S)
        return
    done, _ = await asyncio.wait(running, timeout=_DISCOVERY_S, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _collect(tail: _Tail, limit: asyncio.Semaphore) -> list[LogLine]:
    async with limit:
        earlier = await _collected(tail, of_predecessor=True) if tail.has_predecessor else []
        return [*earlier, *await _collected(tail)]


async def _collected(tail: _Tail, *, of_predecessor: bool = False) -> list[LogLine]:
    try:
        return [line async for line in tail.lines(follow=False, of_predecessor=of_predecessor)]
    except ApiError as error:
        # A container that waits to start has no log yet; the log of a deleted pod is gone.
        if error.invalid or error.not_found:
            return []
        raise
