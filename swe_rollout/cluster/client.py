"""ClusterClient: the requests of this package to a Kubernetes API server, typed by the kind.

Sandboxes, workers, the launcher, the command line and the operator use it. A `Kind` says where
objects are and how to decode them. Exec streams are in `exec`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Final, Literal, TypeVar

import msgspec

from swe_rollout.cluster import objects
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.config import Access, load_access
from swe_rollout.cluster.objects import Json, Kind
from swe_rollout.cluster.responses import (
    Change,
    Listed,
    decode,
    decode_response,
    read_changes,
    read_list,
)
from swe_rollout.cluster.transport import JSON, SPREAD, Transport

T = TypeVar("T")

FIELD_MANAGER: Final = "swe-rollout"
PAGE: Final = 500
"""Objects of one response: kubectl's size, which bounds what the server holds for one request."""
_REQUESTS: Final = {
    "read": ("GET", JSON),
    "create": ("POST", JSON),
    "replace": ("PUT", JSON),
    "patch": ("PATCH", "application/json-patch+json"),
    "change": ("PATCH", "application/merge-patch+json"),
    # The content type of a server-side apply; JSON is YAML too.
    "apply": ("PATCH", "application/apply-patch+yaml"),
}
"""The method and the content type of each request for one object."""
_STRICT: Final = {"fieldValidation": "Strict"}
_DRY_RUN: Final = {"dryRun": "All"}


class ClusterClient:
    """One Kubernetes API server. Safe for concurrent calls.

    Every method raises ApiError if the server refuses, and UnreachableError if it does not respond.
    """

    def __init__(
        self, access: Access, *, retry_timeout_s: float = 60.0, settling_s: float = 0.0
    ) -> None:
        """Open no connection yet; `retry_timeout_s` and `settling_s` as in `Transport`."""
        self.namespace = access.namespace
        self.cluster = access.fingerprint
        """Identifies this cluster among others."""
        self.transport = Transport(access, retry_timeout_s=retry_timeout_s, settling_s=settling_s)

    @classmethod
    async def connect(
        cls,
        context: str | None = None,
        *,
        retry_timeout_s: float = 60.0,
        settling_s: float = 0.0,
    ) -> ClusterClient:
        """Build a client for the context's cluster; raises UsageError or PrerequisiteError."""
        access = await load_access(context)
        return cls(access, retry_timeout_s=retry_timeout_s, settling_s=settling_s)

    async def get(self, kind: Kind[T], namespace: str, name: str) -> T:
        """Read the object of that name."""
        return await self._send("read", kind, namespace, name)

    async def find(self, kind: Kind[T], namespace: str, name: str) -> T | None:
        """Read the object of that name, or return None if there is none."""
        try:
            return await self.get(kind, namespace, name)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def list(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
    ) -> Listed[T]:
        """List the objects that match both selectors, in one namespace or in all: of one version,
        from which a watch can continue.
        """
        reading = self.pages(kind, namespace, labels=labels, fields=fields)
        try:
            async with aclosing(reading) as pages:
                found = [page async for page in pages]
        except ApiError as error:
            if not error.gone:
                raise
            found = []
        if len({page.version for page in found}) != 1:
            # It took so long that the server forgot the first version: all in one response.
            found = [await self._page(kind, namespace, _selection(labels, fields))]
        items = tuple(chain.from_iterable(page.items for page in found))
        return Listed(items, found[-1].version)

    async def pages(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        size: int = PAGE,
    ) -> AsyncGenerator[Listed[T], None]:
        """Yield the objects that match both selectors, at most `size` at a time.

        Pages that the server no longer has in the version of the first are of a newer version.
        """
        query = _selection(labels, fields) | {"limit": str(size)}
        while True:
            try:
                found = await self._page(kind, namespace, query)
            except ApiError as error:
                if not (error.gone and error.following):
                    raise
                query["continue"] = error.following
                continue
            yield found
            if not found.following:
                return
            query["continue"] = found.following

    async def has(self, kind: Kind[T], namespace: str, *, labels: str = "") -> bool:
        """Whether any object matches the selector."""
        async with aclosing(self.pages(kind.heads, namespace, labels=labels, size=1)) as pages:
            async for page in pages:
                if page.items:
                    return True
        return False

    async def _page(self, kind: Kind[T], namespace: str, query: dict[str, str]) -> Listed[T]:
        path, doing = kind.path(namespace, query=query), f"list {kind.plural}{_in(namespace)}"
        return read_list(await self.transport.request("GET", path, doing=doing), kind, doing=doing)

    async def create(
        self,
        kind: Kind[T],
        namespace: str,
        manifest: object,
        *,
        strict: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Create the object; ApiError with `already_exists` if the name is taken.

        With `strict`, unknown fields are refused. A dry run is validated in full but creates
        nothing.
        """
        query = (_STRICT if strict else {}) | (_DRY_RUN if dry_run else {})
        return await self._send("create", kind, namespace, query=query, body=manifest)

    async def ensure(self, kind: Kind[T], namespace: str, name: str, manifest: object) -> T:
        """Return the object of that name, creating it if there is none."""
        found = await self.find(kind, namespace, name)
        if found is not None:
            return found
        try:
            return await self.create(kind, namespace, manifest)
        except ApiError as error:
            if not error.already_exists:
                raise
        return await self.get(kind, namespace, name)

    async def apply(
        self, kind: Kind[T], namespace: str, name: str, manifest: object, *, dry_run: bool = False
    ) -> T:
        """Create the object, or change it to match `manifest`: a forced server-side apply.

        Unknown fields are refused. A dry run is validated in full but changes nothing.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": "true", **_STRICT}
        query |= _DRY_RUN if dry_run else {}
        return await self._send("apply", kind, namespace, name, query=query, body=manifest)

    async def merge(
        self, kind: Kind[T], namespace: str, name: str, patch: object, *, manager: str = ""
    ) -> T:
        """Merge `patch` into the object; ApiError with `conflict` if it names another uid."""
        query = {"fieldManager": manager} if manager else {}
        return await self._send("change", kind, namespace, name, query=query, body=patch)

    async def patch(
        self, kind: Kind[T], namespace: str, name: str, operations: Sequence[Json]
    ) -> T:
        """Apply a JSON patch atomically; ApiError with `invalid` if a `test` fails."""
        return await self._send("patch", kind, namespace, name, body=operations)

    async def replace(self, kind: Kind[T], namespace: str, name: str, manifest: object) -> T:
        """Replace the object; ApiError with `conflict` unless it has the manifest's version."""
        return await self._send("replace", kind, namespace, name, body=manifest)

    async def delete(
        self,
        kind: Kind[T],
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_s: int | None = None,
        propagation: Literal["Foreground", "Background"] = "Background",
    ) -> bool:
        """Delete the object and return True; False if it is gone, or not the intended one.

        It must have this uid and this version, if they are given.
        """
        wanted = {"uid": uid, "resourceVersion": version}
        options: dict[str, object] = {
            "propagationPolicy": propagation,
            "preconditions": {key: value for key, value in wanted.items() if value},
        }
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        path, doing = kind.path(namespace, name), _doing("delete", kind, namespace, name)
        body = msgspec.json.encode(options)
        try:
            await self.transport.request("DELETE", path, doing=doing, body=body)
        except ApiError as error:
            if error.is_absence:
                return False
            raise
        return True

    async def delete_all(
        self, kind: Kind[T], namespace: str, *, labels: str, fields: str = "", grace_s: int
    ) -> None:
        """Delete all objects that match both selectors in one request; there may be none."""
        path = kind.path(namespace, query=_selection(labels, fields))
        body = msgspec.json.encode({"gracePeriodSeconds": grace_s})
        doing = f"delete {kind.plural}{_in(namespace)}"
        await self.transport.request("DELETE", path, doing=doing, body=body)

    async def watch(
        self, kind: Kind[T], namespace: str, *, version: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Change[T], None]:
        """Yield the changes after `version` until the server ends the watch; see `read_changes`."""
        query = _selection(labels, fields) | {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(SPREAD.randint(300, 600)),
        }
        doing = f"watch {kind.plural}{_in(namespace)}"
        async with self.transport.lines(kind.path(namespace, query=query), doing=doing) as stream:
            async for change in read_changes(stream, kind, doing=doing):
                yield change

    async def version(self) -> str:
        """Return the server's version, such as `v1.36.3`."""
        doing = "report its version"
        data = await self.transport.request("GET", "/version", doing=doing)
        return decode_response(data, objects.Version, doing=doing).git_version

    async def pod_events(self, namespace: str, uid: str) -> tuple[objects.KubernetesEvent, ...]:
        """List the events about the pod, oldest first."""
        found = await self.list(objects.EVENTS, namespace, fields=f"involvedObject.uid={uid}")
        return tuple(sorted(found.items, key=lambda event: event.last_timestamp or ""))

    async def is_allowed(
        self, verb: str, resource: str, namespace: str, *, group: str = "", subresource: str = ""
    ) -> bool:
        """Whether these credentials are authorised for the verb on the resource."""
        wanted = {"verb": verb, "resource": resource, "namespace": namespace}
        more = {"group": group, "subresource": subresource}
        attributes = wanted | {key: value for key, value in more.items() if value}
        manifest = {"spec": {"resourceAttributes": attributes}}
        review = await self.create(objects.ACCESS_REVIEWS, "", manifest)
        return review.get("status", {}).get("allowed") is True

    async def user(self) -> str:
        """Return the name by which the API server knows these credentials."""
        review = await self.create(objects.IDENTITIES, "", {})
        return str(review.get("status", {}).get("userInfo", {}).get("username", ""))

    async def aclose(self) -> None:
        """Close every connection."""
        await self.transport.aclose()

    async def _send(
        self,
        verb: str,
        kind: Kind[T],
        namespace: str,
        name: str = "",
        *,
        query: objects.Query = (),
        body: object = None,
    ) -> T:
        """Make a request whose response is an object of the kind."""
        method, content_type = _REQUESTS[verb]
        path, doing = kind.path(namespace, name, query), _doing(verb, kind, namespace, name)
        data = b"" if body is None else msgspec.json.encode(body)
        response = await self.transport.request(
            method, path, doing=doing, body=data, content_type=content_type
        )
        return decode(kind, response, doing=doing)


def _selection(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in chosen.items() if value}


def _doing(verb: str, kind: Kind[T], namespace: str, name: str) -> str:
    return " ".join(filter(None, (verb, kind.noun, name))) + _in(namespace)


def _in(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""
