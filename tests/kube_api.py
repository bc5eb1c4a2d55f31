"""An API server in memory, which tests without a cluster talk to. They say what goes wrong.

It keeps objects, lists and watches them, and evaluates selectors. Whatever else a server does, such
as refuse, be slow, or serve another process first, is a `hook` of the test.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Hook = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Responds in the place of the server, or does something before it does and returns None."""


def refusal(code: int, reason: str = "", message: str = "") -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


def pod(name: str, phase: str = "Pending", **metadata: Any) -> Json:
    """Build a pod whose uid is its name."""
    names = {"name": name, "uid": name, "namespace": "default", "labels": {}}
    return {"metadata": names | metadata, "status": {"phase": phase}}


def place(path: str) -> tuple[str, str, str]:
    """Return the kind, the namespace and the name that a path is about, empty where it has none."""
    parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    return parts[0], namespace, "/".join(parts[1:])


@dataclass(frozen=True)
class Call:
    """A request that changes something."""

    method: str
    kind: str
    namespace: str
    name: str
    """Of the object; empty for all of a kind."""
    query: dict[str, str]
    body: Any


class KubeApi:
    """One API server; connect a client to `respond`."""

    def __init__(self, **objects: list[Json]) -> None:
        """Begin with these objects, by the plurals of their kinds."""
        self.objects = {
            (kind, each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
            for kind, some in objects.items()
            for each in some
        }
        self.hook: Hook | None = None
        self.lost: Counter[str] = Counter()
        """How many of the next responses to a method get lost, after it was carried out."""
        self.calls: list[Call] = []
        self.made = 0
        self.page = 500
        """The most objects of one response to a request that limits them."""
        self._watches: list[asyncio.Queue[Json]] = []

    def called(self, method: str) -> list[Call]:
        """Return all requests of a method."""
        return [call for call in self.calls if call.method == method]

    @property
    def deleted(self) -> list[str]:
        """The names of the objects whose deletion was asked for, one by one."""
        return [call.name for call in self.called("DELETE") if call.name]

    @property
    def is_watched(self) -> bool:
        return bool(self._watches)

    def pods(self) -> dict[str, Json]:
        """Return the pods there are, by name."""
        return {name: each for (kind, _, name), each in self.objects.items() if kind == "pods"}

    def tell(self, changed: Json, *, kind: str = "MODIFIED") -> None:
        """Send a change to all who watch."""
        for each in self._watches:
            each.put_nowait({"type": kind, "object": changed})

    def created(self, new: Json) -> None:
        """Override: what becomes of a new object."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        kind, namespace, name = place(request.path)
        body = json.loads(await request.read() or "{}")
        if request.method != "GET":
            self.calls.append(
                Call(request.method, kind, namespace, name, dict(request.query), body)
            )
        if self.hook is not None and (own := await self.hook(request)) is not None:
            return own
        if "watch" in request.query:
            return await self._watch(request)
        response = self._answer(request, (kind, namespace, name), body)
        if self.lost[request.method] and request.transport is not None:
            self.lost[request.method] -= 1
            request.transport.close()
        return response

    def _answer(
        self, request: web.Request, key: tuple[str, str, str], body: Any
    ) -> web.StreamResponse:
        kind, namespace, name = key
        found = self.objects.get(key)
        match request.method:
            case "POST":
                return self._create((kind, namespace, body["metadata"]["name"]), body)
            case method if not name:
                chosen = {k: each for k, each in self.objects.items() if _fits(request, k, each)}
                if method == "DELETE":
                    self.objects = {k: v for k, v in self.objects.items() if k not in chosen}
                return self._list(request, chosen)
            case _ if found is None:
                return refusal(404, "NotFound", f'{kind} "{name}" not found')
            case "DELETE":
                return self._delete(key, found, body.get("preconditions", {}).get("uid"))
            case "PUT":
                self.objects[key] = found = body
            case "PATCH" if isinstance(body, dict):
                _merge(found, body)
            case "PATCH":
                return self._patch(found, body)
        return web.json_response(found)

    def _list(self, request: web.Request, chosen: dict[tuple[str, str, str], Json]) -> web.Response:
        """List the objects, or those after the key that is named to continue."""
        after = request.query.get("continue", "")
        rest = {str(key): each for key, each in sorted(chosen.items()) if str(key) > after}
        some = list(rest)[: self.page if "limit" in request.query else None]
        following = some[-1] if len(some) < len(rest) else ""
        metadata = {"resourceVersion": "1", "continue": following}
        items = [rest[key] for key in some]
        return web.json_response({"metadata": metadata, "items": items})

    def _create(self, key: tuple[str, str, str], new: Json) -> web.Response:
        if key in self.objects:
            return refusal(409, "AlreadyExists")
        self.made += 1
        names = {"namespace": key[1], "uid": f"u{self.made}", "resourceVersion": "2"}
        status = {"phase": "Pending"} if key[0] == "pods" else {}
        new = {**new, "metadata": {**new["metadata"], **names}, "status": status}
        self.objects[key] = new
        self.created(new)
        return web.json_response(new)

    def _delete(self, key: tuple[str, str, str], found: Json, uid: str | None) -> web.Response:
        metadata = found["metadata"]
        if uid not in (None, metadata["uid"]):
            return refusal(409, "Conflict")
        if metadata.get("finalizers"):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            del self.objects[key]
            self.tell(found, kind="DELETED")
        return web.json_response(found)

    def _patch(self, found: Json, operations: list[Json]) -> web.Response:
        for each in operations:
            *steps, last = (
                step.replace("~1", "/").replace("~0", "~") for step in each["path"].split("/")[1:]
            )
            parent = found
            for step in steps:
                parent = parent.setdefault(step, {})
            if each["op"] == "test" and parent.get(last) != each["value"]:
                return refusal(422, "Invalid")
            if each["op"] == "remove":
                del parent[last]
            elif each["op"] != "test":
                parent[last] = each["value"]
        self.tell(found)
        return web.json_response(found)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        changes: asyncio.Queue[Json] = asyncio.Queue()
        for key, each in self.objects.items():
            if _fits(request, key, each):
                changes.put_nowait({"type": "MODIFIED", "object": each})
        self._watches.append(changes)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(json.dumps(await changes.get()).encode() + b"\n")


def _merge(found: Json, patch: Json) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(found.setdefault(name, {}), value)
        else:
            found[name] = value


def _fits(request: web.Request, key: tuple[str, str, str], found: Json) -> bool:
    kind, namespace, _ = place(request.path)
    labels = found["metadata"].get("labels", {})
    fields = {
        f"{part}.{name}": v
        for part, of in found.items()
        if isinstance(of, dict)
        for name, v in of.items()
    }
    return (
        key[0] == kind
        and namespace in ("", key[1])
        and _is_selected(request.query.get("labelSelector", ""), labels)
        and _is_selected(request.query.get("fieldSelector", ""), fields)
    )


def _is_selected(selector: str, values: Json) -> bool:
    """Evaluate `name`, `name=value` and `name in (value,value)`."""
    terms = re.findall(r"([^,= ]+)(?:=([^,]*)| in \(([^)]*)\))?(?:,|$)", selector)
    return all(
        name in values and (not (one or some) or str(values[name]) in (one, *some.split(",")))
        for name, one, some in terms
    )
