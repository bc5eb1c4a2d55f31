"""An API server that knows RBAC and nothing else: requests beyond a role are refused.

It reads the roles of `swe-rollout install`, keeps objects in memory, and notes which rights were
used. Selectors are not evaluated; that an admission policy narrows a right is for the cluster tier.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import yaml
from aiohttp import web

from kube_api import Json, KubeApi, place, refusal
from swe_rollout.cli.install import manifests

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
    group = "" if path.startswith("/api/") else path.split("/")[2]
    kind, _, rest = place(path)
    name, _, subresource = rest.partition("/")
    resource = "/".join(filter(None, (kind, subresource)))
    match method:
        case "GET":
            verb = "watch" if watch else "get" if name else "list"
        case "DELETE":
            verb = "delete" if name else "deletecollection"
        case _:
            verb = _VERBS[method]
    return Right(verb, resource, group, name)


class RbacServer(KubeApi):
    """Answers what one role allows."""

    def __init__(self, role: str, **objects: list[Json]) -> None:
        super().__init__(**objects)
        self.used: set[Right] = set()
        """Rights of the role that a request needed."""
        self.refused: list[Right] = []
        self.hook = self._authorize
        self._granted = granted(role)
        self._changed = asyncio.Event()

    async def until_used(self, right: Right) -> None:
        """Wait until a request needed this right."""
        while right not in self.used:
            self._changed.clear()
            await self._changed.wait()

    async def _authorize(self, request: web.Request) -> web.Response | None:
        wanted = asked(request.method, request.path, watch="watch" in request.query)
        # A rule for one name covers no `create`: the name is not known by then.
        candidates = {
            Right(wanted.verb, wanted.resource, wanted.group, name)
            for name in ({""} if wanted.verb == "create" else {"", wanted.name})
        }
        fitting = candidates & self._granted
        if not fitting:
            self.refused.append(wanted)
            return refusal(403, "Forbidden", f"may not {wanted}")
        self.used |= fitting
        self._changed.set()
        return None
