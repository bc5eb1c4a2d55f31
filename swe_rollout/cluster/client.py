"""ClusterClient: the requests of this package to a Kubernetes API server, typed by the kind.

Everybody uses it: sandboxes, workers, the launcher, the command line and the operator. A `Kind`
says where objects are and how they are decoded. Exec streams are in `exec`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import aiohttp
import msgspec

from swe_rollout.cluster import objects
from swe_rollout.cluster.api_error import (
    UNDECODABLE,
    ApiError,
    api_error,
    decode_response,
    undecodable,
)
from swe_rollout.cluster.config import Access, load_access
from swe_rollout.cluster.objects import Json, Kind
from swe_rollout.cluster.transport import APPLY, JSON, JSON_PATCH, MERGE_PATCH, Transport
from swe_rollout.errors import UnreachableError

T = TypeVar("T")

FIELD_MANAGER: Final = "swe-rollout"
_STRICT: Final = {"fieldValidation": "Strict"}
_DRY_RUN: Final = {"dryRun": "All"}


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The objects of a list."""

    items: tuple[T, ...]
    version: str
    """Resource version from which a watch continues."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One event of a watch."""

    version: str
    """Resource version from which an interrupted watch continues."""
    object: T | None = None
    """The object after the change; None for a bookmark, which only moves the version."""
    deleted: bool = False


class _List(objects.Decoded, frozen=True):
    metadata: objects.Metadata = objects.Metadata()
    items: list[msgspec.Raw] | None = None


class _Event(objects.Decoded, frozen=True):
    type: str
    object: msgspec.Raw


class UnreadableWatchError(UnreachableError):
    """Something else than an API server wrote into a watch."""


class ClusterClient:
    """One Kubernetes API server. Safe for concurrent calls.

    Every method raises ApiError for a refusal, and UnreachableError without a response.
    """

    def __init__(
        self, access: Access, *, retry_timeout_s: float = 60.0, settling_s: float = 0.0
    ) -> None:
        """Open no connection yet; `retry_timeout_s` and `settling_s` as in `Transport`."""
        self.namespace = access.namespace
        self.cluster = access.fingerprint
        """Tells this cluster from others."""
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
        doing = _doing("read", kind, namespace, name)
        return await self._send("GET", kind, kind.path(namespace, name), doing)

    async def find(self, kind: Kind[T], namespace: str, name: str) -> T | None:
        """Read the object of that name, or return None when there is none."""
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
        limit: int = 0,
    ) -> Listed[T]:
        """List the objects that match both selectors, of one namespace or of all."""
        query = _selection(labels, fields) | ({"limit": str(limit)} if limit else {})
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
        """Create the object; ApiError with `already_exists` where the name is taken.

        With `strict`, unknown fields are refused. A dry run is validated in full but creates
        nothing.
        """
        query = (_STRICT if strict else {}) | (_DRY_RUN if dry_run else {})
        doing = f"create {kind.noun}{_in(namespace)}"
        return await self._send(
            "POST", kind, kind.path(namespace, query=query), doing, body=manifest
        )

    async def ensure(self, kind: Kind[T], namespace: str, name: str, manifest: object) -> T:
        """Return the object of that name, after creating it where there is none."""
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
        path = kind.path(namespace, name, query | (_DRY_RUN if dry_run else {}))
        doing = _doing("apply", kind, namespace, name)
        return await self._send("PATCH", kind, path, doing, body=manifest, content_type=APPLY)

    async def merge(
        self, kind: Kind[T], namespace: str, name: str, patch: object, *, manager: str = ""
    ) -> T:
        """Merge `patch` into the object; ApiError with `conflict` where it names another uid."""
        path = kind.path(namespace, name, {"fieldManager": manager} if manager else ())
        doing = _doing("change", kind, namespace, name)
        return await self._send("PATCH", kind, path, doing, body=patch, content_type=MERGE_PATCH)

    async def patch(
        self, kind: Kind[T], namespace: str, name: str, operations: Sequence[Json]
    ) -> T:
        """Apply a JSON patch, all or none of it; ApiError with `invalid` where a `test` fails."""
        path, doing = kind.path(namespace, name), _doing("patch", kind, namespace, name)
        return await self._send(
            "PATCH", kind, path, doing, body=operations, content_type=JSON_PATCH
        )

    async def replace(self, kind: Kind[T], namespace: str, name: str, manifest: object) -> T:
        """Replace the object; ApiError with `conflict` unless it has the manifest's version."""
        doing = _doing("replace", kind, namespace, name)
        return await self._send("PUT", kind, kind.path(namespace, name), doing, body=manifest)

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
        """Delete the object and return True; False when it is gone, or not the one that is meant.

        It must have this uid and this version, where they are given.
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
        """Delete all objects that match both selectors, in one request; no match is no error."""
        path = kind.path(namespace, query=_selection(labels, fields))
        body = msgspec.json.encode({"gracePeriodSeconds": grace_s})
        doing = f"delete {kind.plural}{_in(namespace)}"
        await self.transport.request("DELETE", path, doing=doing, body=body)

    async def watch(
        self, kind: Kind[T], namespace: str, *, version: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Change[T], None]:
        """Yield the changes after `version` until the server ends the watch, as `read_changes`."""
        query = _selection(labels, fields) | {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(300, 600)),  # noqa: S311 - spreads load
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
        wanted = {"verb": verb, "resource": resource, "namespace": namespace, "group": group}
        wanted = {**wanted, "subresource": subresource}
        attributes = {key: value for key, value in wanted.items() if value}
        manifest = {"spec": {"resourceAttributes": attributes}}
        return (await self.create(objects.ACCESS_REVIEWS, "", manifest)).status.allowed

    async def user(self) -> str:
        """Return the name by which the API server knows these credentials."""
        return (await self.create(objects.IDENTITIES, "", {})).status.user_info.username

    async def aclose(self) -> None:
        """Close every connection."""
        await self.transport.aclose()

    async def _send(
        self,
        method: str,
        kind: Kind[T],
        path: str,
        doing: str,
        *,
        body: object = None,
        content_type: str = JSON,
    ) -> T:
        """Make a request whose response is an object of the kind."""
        data = b"" if body is None else msgspec.json.encode(body)
        response = await self.transport.request(
            method, path, doing=doing, body=data, content_type=content_type
        )
        return _decoded(kind, response, doing)


def read_list(data: bytes, kind: Kind[T], *, doing: str) -> Listed[T]:
    """Decode a list; raises ClusterError when it is none."""
    found = decode_response(data, _List, doing=doing)
    items = tuple(_decoded(kind, each, doing) for each in found.items or ())
    return Listed(items, found.metadata.resource_version)


async def read_changes(
    stream: aiohttp.StreamReader, kind: Kind[T], *, doing: str
) -> AsyncIterator[Change[T]]:
    """Decode a watch; raises the ApiError that the server sends in its stream.

    Raises UnreadableWatchError for a line that is no event, such as a proxy's page.
    """
    try:
        async for line in read_lines(stream):
            event = msgspec.json.decode(line, type=_Event)
            match event.type:
                case "ERROR":
                    status = msgspec.json.decode(event.object, type=objects.Status)
                    raise api_error(doing, status.code, bytes(event.object))
                case "ADDED" | "MODIFIED" | "DELETED":
                    yield Change(
                        _version(event.object), kind.decode(event.object), event.type == "DELETED"
                    )
                case _:
                    yield Change(_version(event.object))
    except UNDECODABLE as error:
        raise UnreadableWatchError(
            "a watch of the Kubernetes API can't be read",
            why=f"{type(error).__name__}: {error}"[:300],
            fix="look for a proxy between here and the API server",
        ) from error


async def read_lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Read lines of any length from a streamed response; `StreamReader.readline` limits them."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _version(data: msgspec.Raw) -> str:
    return msgspec.json.decode(data, type=objects.Head).metadata.resource_version


def _decoded(kind: Kind[T], data: bytes, doing: str) -> T:
    try:
        return kind.decode(data)
    except UNDECODABLE as error:
        raise undecodable(doing, error) from error


def _selection(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in chosen.items() if value}


def _doing(verb: str, kind: Kind[T], namespace: str, name: str) -> str:
    return f"{verb} {kind.noun} {name}{_in(namespace)}"


def _in(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""
