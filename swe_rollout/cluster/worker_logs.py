"""What a job's workers log: everything so far, or line by line as it comes.

Lines carry the kubelet's time stamps, so that a lost connection goes on without losing or doubling
one. Which lines a person wants is the command line's business.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import aiohttp

from swe_rollout.cluster.api_error import TRANSIENT, ApiError
from swe_rollout.cluster.client import pods_path
from swe_rollout.cluster.watch import read_lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from swe_rollout.cluster.jobs import Jobs
    from swe_rollout.cluster.objects import Pod

CONTAINER = "worker"
_PAUSE_S = 1.0
_LOOK_S = 2.0
_AT_ONCE = 16
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a worker."""

    time: str
    """RFC 3339, to the nanosecond."""
    pod: str
    text: str


async def read_logs(jobs: Jobs, namespace: str, name: str) -> tuple[LogLine, ...]:
    """What the job's workers have logged so far, in the order of time."""
    pods = await jobs.workers(namespace, name)
    room = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_collect(_Tail(jobs, namespace, pod), room) for pod in pods))
    return tuple(sorted((line for lines in found for line in lines), key=lambda line: line.time))


async def follow_logs(
    jobs: Jobs, namespace: str, name: str, *, on_line: Callable[[LogLine], None]
) -> None:
    """Tell every line as it comes, of workers that start later too, until the job is over."""
    tails: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            job = await jobs.find(namespace, name)
            over = job is None or job.status.completion_time is not None
            for pod in await jobs.workers(namespace, name):
                if pod.metadata.uid not in tails:
                    tail = _Tail(jobs, namespace, pod)
                    tails[pod.metadata.uid] = asyncio.create_task(tail.follow(on_line))
            running = [task for task in tails.values() if not task.done()]
            if over and not running:
                break
            await _some_time(running)
    finally:
        for task in tails.values():
            task.cancel()
        await asyncio.gather(*tails.values(), return_exceptions=True)


class _Tail:
    """The log of one worker pod, read on from the last line that was seen."""

    def __init__(self, jobs: Jobs, namespace: str, pod: Pod) -> None:
        self._client = jobs.client
        self._namespace = namespace
        self._pod = pod.metadata.name
        self._seen = ""

    async def lines(self, *, follow: bool) -> AsyncIterator[LogLine]:
        """The lines after the last one seen; none while the container has not started."""
        query = {"container": CONTAINER, "timestamps": "true", "follow": str(follow).lower()}
        if self._seen:
            query["sinceTime"] = self._seen
        path = f"{pods_path(self._namespace, self._pod)}/log?{urlencode(query, quote_via=quote)}"
        doing = f"read the log of pod {self._pod}"
        async with self._client.transport.lines(path, doing=doing) as stream:
            async for line in read_lines(stream):
                time, _, text = line.decode(errors="replace").partition(" ")
                if time > self._seen:
                    self._seen = time
                    yield LogLine(time, self._pod, text)

    async def follow(self, on_line: Callable[[LogLine], None]) -> None:
        """Tell all lines until the pod is over, over lost connections and restarts."""
        while True:
            over = await self._over()
            try:
                async for line in self.lines(follow=not over):
                    on_line(line)
            except ApiError as error:
                if error.not_found:
                    return
                if not (error.invalid or error.unauthorized or error.code in TRANSIENT):
                    raise
            except (aiohttp.ClientError, TimeoutError):
                continue
            if over:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _over(self) -> bool:
        try:
            pod = await self._client.get_pod(self._namespace, self._pod)
        except ApiError as error:
            if error.not_found:
                return True
            raise
        return pod.status.phase in _OVER


async def _some_time(running: Sequence[asyncio.Task[None]]) -> None:
    """Until it is time to look for new pods, or until a log has ended."""
    if not running:
        await asyncio.sleep(_LOOK_S)
        return
    done, _ = await asyncio.wait(running, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _collect(tail: _Tail, room: asyncio.Semaphore) -> list[LogLine]:
    try:
        async with room:
            return [line async for line in tail.lines(follow=False)]
    except ApiError as error:
        # A container that waits to start has no log; a pod that is gone has none any more.
        if error.invalid or error.not_found:
            return []
        raise
