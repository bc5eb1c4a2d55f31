"""A scripted API server for one RolloutJob or one list, and the jobs it responds with."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from aiohttp import web

from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.cluster.jobs import Jobs
from unit.conftest import Connect, Handler


def job(version: str = "1", *, uid: str = "u", **status: Any) -> dict[str, Any]:
    metadata = {
        "name": "demo",
        "namespace": "ns",
        "uid": uid,
        "resourceVersion": version,
        "generation": 2,
        "managedFields": [],
    }
    return {"metadata": metadata, "spec": {"store": {"uri": "s3://b/p"}}, "status": status}


def condition(kind: str, status: str = "True", **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Because",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **fields,
    }


def absent(name: str = "demo") -> web.Response:
    body = {"code": 404, "reason": "NotFound", "message": f'rolloutjobs "{name}" not found'}
    return web.json_response(body, status=404)


class JobServer:
    """Plays responses to GETs, and watches, in the order given; then stays silent."""

    def __init__(self, *, gets: list[Any], watches: list[Any] = []) -> None:  # noqa: B006
        self.gets = deque(gets)
        self.watches = deque(watches)
        self.requests: list[str] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            self.requests.append(f"watch from {request.query['resourceVersion']}")
            assert request.query.get("fieldSelector", "metadata.name=demo") == "metadata.name=demo"
            assert request.query["allowWatchBookmarks"] == "true"
            return await self._watch(request)
        self.requests.append(request.method)
        if request.method == "DELETE":
            return web.json_response({})
        found = self.gets.popleft() if len(self.gets) > 1 else self.gets[0]
        return absent() if found is None else web.json_response(found)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        events = self.watches.popleft() if self.watches else []
        if isinstance(events, int):
            return web.json_response({"code": events, "reason": "Expired"}, status=events)
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            line = event if isinstance(event, bytes) else json.dumps(event).encode()
            await response.write(line + b"\n")
        if not self.watches:
            await asyncio.sleep(60)
        elif request.transport is not None:
            request.transport.close()
        return response


def changed(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": body}


def decoded(body: dict[str, Any]) -> JobObject:
    return JobObject.decode(json.dumps(body).encode())


async def open_jobs(connect: Connect, handler: Handler) -> Jobs:
    return Jobs(await connect(handler, retry_timeout_s=0.1))
