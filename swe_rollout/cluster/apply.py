"""Apply any object by server-side apply, as `kubectl apply --server-side` does, or delete it.

The path of a kind is discovered from the API server, so no kind is hard-coded here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote

import msgspec

from swe_rollout.cluster.api_error import ApiError, decode_response
from swe_rollout.cluster.objects import Metadata
from swe_rollout.cluster.transport import APPLY, Transport
from swe_rollout.errors import PrerequisiteError

FIELD_MANAGER: Final = "swe-rollout"
PART_OF: Final = "app.kubernetes.io/part-of"
_POLL_S: Final = 0.5


class ApplyResult(StrEnum):
    """What was done to the object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    ABSENT = "not found"
    FOREIGN = "kept: not a part of swe-rollout"


@dataclass(frozen=True, slots=True)
class Applied:
    """An object that now matches its document, or is deleted."""

    name: str
    """`deployment/swe-rollout-operator`."""
    result: ApplyResult


class _ObjectHead(msgspec.Struct, rename="camel", frozen=True):
    """The fields that every object has."""

    api_version: str
    kind: str
    metadata: Metadata


class _ApiResource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool


class _ApiResourceList(msgspec.Struct, frozen=True):
    resources: list[_ApiResource] = []


class Applier:
    """Applies or deletes objects, one after another."""

    def __init__(
        self, transport: Transport, *, on_note: Callable[[str], None], timeout_s: float
    ) -> None:
        self._transport = transport
        self._on_note = on_note
        self._timeout_s = timeout_s
        self._discovered: dict[str, _ApiResourceList] = {}

    async def apply(self, document: object) -> Applied:
        """Apply `document`, taking over fields of other managers; unknown fields are refused.

        An object that is being deleted is waited for: applied to, it would disappear afterwards.
        """
        head = msgspec.convert(document, _ObjectHead)
        path = await self._path(head)
        label = f"{head.kind.lower()}/{head.metadata.name}"
        before = await self._find(path, label)
        if before is not None and before.deletion_timestamp is not None:
            await self._until_gone(path, label)
            before = None
        data = await self._transport.request(
            "PATCH",
            f"{path}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict",
            doing=f"apply {label}",
            body=msgspec.json.encode(document),
            content_type=APPLY,
        )
        after = msgspec.json.decode(data, type=_ObjectHead).metadata.resource_version
        if before is None:
            return Applied(label, ApplyResult.CREATED)
        same = before.resource_version == after
        return Applied(label, ApplyResult.UNCHANGED if same else ApplyResult.CHANGED)

    async def delete(self, document: object) -> Applied:
        """Delete the object of this kind and name, and wait until it is gone.

        One without our label is somebody else's, and is kept.
        """
        head = msgspec.convert(document, _ObjectHead)
        path = await self._path(head)
        label = f"{head.kind.lower()}/{head.metadata.name}"
        found = await self._find(path, label)
        if found is None:
            return Applied(label, ApplyResult.ABSENT)
        if found.labels.get(PART_OF) != FIELD_MANAGER:
            return Applied(label, ApplyResult.FOREIGN)
        if found.deletion_timestamp is None:
            options = {"propagationPolicy": "Background", "preconditions": {"uid": found.uid}}
            await self._transport.request(
                "DELETE", path, doing=f"delete {label}", body=msgspec.json.encode(options)
            )
        if await self._find(path, label) is not None:
            await self._until_gone(path, label)
        return Applied(label, ApplyResult.DELETED)

    async def _until_gone(self, path: str, label: str) -> None:
        self._on_note(f"waiting until {label} is deleted")
        end = time.monotonic() + self._timeout_s
        while (found := await self._find(path, label)) is not None:
            if time.monotonic() > end:
                finalizers = ", ".join(found.finalizers) or "its own contents"
                raise PrerequisiteError(
                    f"{label} is being deleted, and still exists after {self._timeout_s:g} s",
                    why=f"it waits for {finalizers}",
                    fix="`swe-rollout uninstall` names the jobs that are left; then run this again",
                )
            await asyncio.sleep(_POLL_S)

    async def _find(self, path: str, label: str) -> Metadata | None:
        """Read the metadata of the existing object; None where there is none."""
        try:
            data = await self._transport.request("GET", path, doing=f"read {label}")
        except ApiError as error:
            if error.not_found:
                return None
            raise
        return msgspec.json.decode(data, type=_ObjectHead).metadata

    async def _path(self, head: _ObjectHead) -> str:
        root = _api_root(head.api_version)
        resource = await self._resource(root, head)
        scope = f"/namespaces/{quote(head.metadata.namespace)}" if resource.namespaced else ""
        return f"{root}{scope}/{resource.name}/{quote(head.metadata.name)}"

    async def _resource(self, root: str, head: _ObjectHead) -> _ApiResource:
        if root not in self._discovered:
            self._discovered[root] = await self._discover(root, head)
        for each in self._discovered[root].resources:
            # Subresources carry a kind as well.
            if each.kind == head.kind and "/" not in each.name:
                return each
        raise _unknown_kind(head)

    async def _discover(self, root: str, head: _ObjectHead) -> _ApiResourceList:
        doing = f"list kinds of {root}"
        try:
            data = await self._transport.request("GET", root, doing=doing)
        except ApiError as error:
            if error.not_found:
                raise _unknown_kind(head) from error
            raise
        return decode_response(data, _ApiResourceList, doing=doing)


def _api_root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _unknown_kind(head: _ObjectHead) -> PrerequisiteError:
    return PrerequisiteError(
        f"this cluster has no {head.kind} of {head.api_version}",
        why="it is older than swe-rollout requires, or lacks an extension",
        fix="use Kubernetes 1.31 or newer: `kubectl version` prints the cluster's",
    )
