"""An API server that knows RBAC and nothing else: requests beyond a role are refused.

It reads the roles of `swe-rollout install`, keeps objects in memory, and notes which rights were
used. Selectors are not evaluated; that an admission policy narrows a right is for the cluster tier.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from aiohttp import web

from swe_rollout.cli.install import manifests

Json = dict[str, Any]
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, as a rule of a role grants it."""

    verb: str
    resource: str
    """With its subresource: `pods/exec`."""
    group: str = ""
    name: str = ""
    """The only object that the rule is about; empty: all of them."""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}" + (f"/{self.name}" if self.name else "")


def granted(role: str) -> set[Right]:
    """List the rights of a ClusterRole."""
    [found] = [
        each
        for each in yaml.safe_load_all(manifests())
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == role
    ]
    return {
        Right(verb, resource, group, name)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def asked(method: str, path: str, *, watch: bool) -> Right:
    """Return the right that a request needs, in the words of the API server's authorizer."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource, name = "/".join((rest[0], *rest[2:])), rest[1] if len(rest) > 1 else ""
    match method:
        case "GET":
            verb = "watch" if watch else "get" if name else "list"
        case "DELETE":
            verb = "delete" if name else "deletecollection"
        case _:
            verb = _VERBS[method]
    return Right(verb, resource, group, name)


@dataclass
class RbacServer:
    """Answers what one role allows."""

    role: str
    objects: dict[str, Json] = field(default_factory=dict)
    """By path."""
    used: set[Right] = field(default_factory=set)
    """Rights of the role that a request needed."""
    refused: list[Right] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._granted = granted(self.role)
        self._changed = asyncio.Event()

    async def until_used(self, right: Right) -> None:
        """Wait until a request needed this right."""
        while right not in self.used:
            self._changed.clear()
            await self._changed.wait()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one request: 403 without the right, otherwise from the objects in memory."""
        wanted = asked(request.method, request.path, watch="watch" in request.query)
        # A rule for one name covers no `create`: the name is not known by then.
        candidates = {
            Right(wanted.verb, wanted.resource, wanted.group, name)
            for name in ({""} if wanted.verb == "create" else {"", wanted.name})
        }
        fitting = candidates & self._granted
        if not fitting:
            self.refused.append(wanted)
            return _status(403, "Forbidden", f"may not {wanted}")
        self.used |= fitting
        self._changed.set()
        if wanted.verb == "watch":
            await asyncio.sleep(0.05)  # an orderly end, soon
            return web.Response()
        body = json.loads(await request.text() or "{}") if request.can_read_body else {}
        return self._answer(wanted, request.method, request.path, body)

    def _answer(
        self, wanted: Right, method: str, path: str, body: Json | list[Json]
    ) -> web.Response:
        if method == "POST" and isinstance(body, dict):
            new = f"{path}/{body['metadata']['name']}"
            if new in self.objects:
                return _status(409, "AlreadyExists", new)
            uid = f"uid-{len(self.objects)}"
            body["metadata"] = {"uid": uid, "resourceVersion": "1", **body["metadata"]}
            self.objects[new] = body
            return web.json_response(body, status=201)
        if path in self.objects:
            found = self.objects[path]
            if method == "DELETE":
                del self.objects[path]
            if method == "PUT" and isinstance(body, dict):
                self.objects[path] = found = body
            return web.json_response(found)
        if method == "PATCH" and wanted.resource.endswith("/status"):
            return web.json_response(body)
        if not wanted.name:
            below = [each for name, each in self.objects.items() if name.rpartition("/")[0] == path]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": below})
        return _status(404, "NotFound", path)


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)
