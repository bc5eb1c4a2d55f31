"""Jobs: the RolloutJobs of a cluster, for people: read, apply, change, delete, follow, hear of.

Refusals become errors with a cure, since what leaves here is shown at a terminal or in a notebook.
Used by the launcher and the command line; the worker and the operator have their own ways.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from itertools import chain
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import structlog

from swe_rollout.cluster.api_error import TRANSIENT, ApiError, api_error
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import JobEventList, JobObject
from swe_rollout.cluster.objects import Status
from swe_rollout.cluster.refusal import no_such_object, told
from swe_rollout.cluster.transport import APPLY, MERGE_PATCH
from swe_rollout.cluster.watch import read_lines
from swe_rollout.errors import UnreachableError
from swe_rollout.spec.job import API_VERSION, KIND
from swe_rollout.spec.status import JOB_LABEL, ROLE_LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from swe_rollout.cluster.job_objects import JobEvent
    from swe_rollout.cluster.objects import Pod
    from swe_rollout.spec.job import RolloutJob

log = structlog.get_logger()

FIELD_MANAGER = "swe-rollout"
PATIENCE_S = 15.0
"""People wait at the other end."""
_PAUSE_S = 1.0
"""Before an interrupted watch goes on."""


class _WatchLine(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Jobs:
    """The RolloutJobs of one cluster. Safe for concurrent calls; close it with `aclose`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._transport = client.transport

    @classmethod
    async def connect(cls, context: str | None = None) -> Self:
        """The jobs of the context's cluster; raises UsageError or PrerequisiteError."""
        return cls(await ClusterClient.connect(context, patience_s=PATIENCE_S))

    @property
    def client(self) -> ClusterClient:
        """The connection itself."""
        return self._client

    @property
    def namespace(self) -> str:
        """The context's own namespace."""
        return self._client.namespace

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, namespace: str, name: str) -> JobObject:
        """The job of that name; UsageError when there is none."""
        doing = f"read the RolloutJob {namespace}/{name}"
        with told(namespace, name):
            return JobObject.decode(
                await self._transport.request("GET", _path(namespace, name), doing=doing)
            )

    async def find(self, namespace: str, name: str) -> JobObject | None:
        """The job of that name, if there is one."""
        doing = f"read the RolloutJob {namespace}/{name}"
        with told(namespace, name):
            try:
                data = await self._transport.request("GET", _path(namespace, name), doing=doing)
            except ApiError as error:
                if no_such_object(error):
                    return None
                raise
        return JobObject.decode(data)

    async def in_namespace(self, namespace: str) -> tuple[JobObject, ...]:
        """All jobs of a namespace, by name."""
        with told(namespace, ""):
            data = await self._transport.request(
                "GET", _path(namespace), doing=f"list RolloutJobs in {namespace}"
            )
        return JobObject.decode_list(data)

    async def apply(self, namespace: str, job: RolloutJob, *, dry_run: bool = False) -> JobObject:
        """The job as the API server has it now: created, or changed to what `job` says.

        A dry run is checked by the API server like a real one, and makes nothing. Fields that the
        job's file doesn't name stay the server's: the object reads like the file.
        """
        name = job.metadata.name
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            **job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True),
        }
        body["metadata"] = {**body["metadata"], "namespace": namespace}
        with told(namespace, name):
            data = await self._transport.request(
                "PATCH",
                f"{_path(namespace, name)}?{urlencode(query)}",
                doing=f"apply the RolloutJob {namespace}/{name}",
                body=msgspec.json.encode(body),
                content_type=APPLY,
            )
        return JobObject.decode(data)

    async def suspend(self, namespace: str, name: str, *, suspended: bool) -> JobObject:
        """The job, told to start no further episodes, or to go on."""
        with told(namespace, name):
            data = await self._transport.request(
                "PATCH",
                f"{_path(namespace, name)}?{urlencode({'fieldManager': FIELD_MANAGER})}",
                doing=f"{'suspend' if suspended else 'resume'} the RolloutJob {namespace}/{name}",
                body=msgspec.json.encode({"spec": {"suspend": suspended}}),
                content_type=MERGE_PATCH,
            )
        return JobObject.decode(data)

    async def delete(self, namespace: str, name: str, *, uid: str) -> None:
        """Ask for this very job's end; it is gone when its pods are. Nothing when it is gone."""
        with told(namespace, name):
            try:
                await self._transport.request(
                    "DELETE",
                    _path(namespace, name),
                    doing=f"delete the RolloutJob {namespace}/{name}",
                    body=msgspec.json.encode({"preconditions": {"uid": uid}}),
                )
            except ApiError as error:
                if not no_such_object(error) and not error.conflict:
                    raise

    async def follow(self, namespace: str, name: str) -> AsyncGenerator[JobObject, None]:
        """The job now and after each change, until it is gone; UsageError if it never was.

        Once it was seen, an API server that is away for a while only means silence.
        """
        found: JobObject | None = await self.get(namespace, name)
        while found is not None:
            yield found
            try:
                async with aclosing(self._watch(found)) as changes:
                    async for change in changes:
                        if change is None:
                            return
                        yield change
            except ApiError as error:
                if not (error.gone or error.unauthorized or error.code in TRANSIENT):
                    with told(namespace, name):
                        raise
            except (aiohttp.ClientError, TimeoutError) as error:
                log.info("job_watch_interrupted", job=f"{namespace}/{name}", reason=str(error))
            found = await self._again(namespace, name)

    async def events(self, job: JobObject) -> tuple[JobEvent, ...]:
        """What was said about the job, its worker Job and its workers; oldest first."""
        pods = await self.workers(job.namespace, job.name)
        selectors = [
            f"involvedObject.uid={job.metadata.uid}",
            f"involvedObject.kind=Job,involvedObject.name={job.name}-workers",
            *(f"involvedObject.uid={pod.metadata.uid}" for pod in pods),
        ]
        found = await asyncio.gather(*(self._events(job.namespace, each) for each in selectors))
        return tuple(sorted(chain.from_iterable(found), key=lambda event: event.time))

    async def workers(self, namespace: str, name: str) -> tuple[Pod, ...]:
        """The job's worker pods, by name."""
        with told(namespace, name):
            found = await self._client.list_pods(
                namespace, f"{JOB_LABEL}={name},{ROLE_LABEL}=worker"
            )
        return tuple(sorted(found.items or [], key=lambda pod: pod.metadata.name))

    async def _again(self, namespace: str, name: str) -> JobObject | None:
        while True:
            await asyncio.sleep(random.uniform(0, _PAUSE_S))  # noqa: S311 - spreads load
            try:
                return await self.find(namespace, name)
            except UnreachableError as error:
                log.warning("job_watch_waits", job=f"{namespace}/{name}", reason=str(error))

    async def _watch(self, job: JobObject) -> AsyncGenerator[JobObject | None, None]:
        """Changes of the job from the version at hand on; none when it was deleted."""
        doing = f"watch the RolloutJob {job.namespace}/{job.name}"
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={job.name}",
            "resourceVersion": job.metadata.resource_version,
            "allowWatchBookmarks": "true",
        }
        path = f"{_path(job.namespace)}?{urlencode(query)}"
        async with self._transport.lines(path, doing=doing) as stream:
            async for line in read_lines(stream):
                event = msgspec.json.decode(line, type=_WatchLine)
                match event.type:
                    case "ADDED" | "MODIFIED":
                        yield JobObject.decode(event.object)
                    case "DELETED":
                        yield None
                    case "ERROR":
                        status = msgspec.json.decode(event.object, type=Status)
                        raise api_error(doing, status.code, bytes(event.object))
                    case _:
                        pass

    async def _events(self, namespace: str, selector: str) -> list[JobEvent]:
        query = urlencode({"fieldSelector": selector}, quote_via=quote)
        path = f"/api/v1/namespaces/{quote(namespace)}/events?{query}"
        with told(namespace, ""):
            data = await self._transport.request("GET", path, doing=f"list events in {namespace}")
        return msgspec.json.decode(data, type=JobEventList).items or []


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/{API_VERSION}/namespaces/{quote(namespace)}/rolloutjobs"
    return f"{path}/{quote(name)}" if name else path
