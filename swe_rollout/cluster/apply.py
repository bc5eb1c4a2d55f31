"""Apply: any object by server-side apply, as `kubectl apply --server-side` would.

The kinds are asked of the API server, so none is known here. `installation` uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import Metadata  # noqa: TC001 - msgspec reads it
from swe_rollout.cluster.transport import APPLY
from swe_rollout.errors import ClusterError, PrerequisiteError

if TYPE_CHECKING:
    from swe_rollout.cluster.transport import Transport

FIELD_MANAGER: Final = "swe-rollout"


class Outcome(StrEnum):
    """What became of an object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Applied:
    """An object that is now as it was asked for."""

    name: str
    """`deployment/swe-rollout-operator`."""
    outcome: Outcome


class ObjectHead(msgspec.Struct, rename="camel", frozen=True):
    """What every object begins with."""

    api_version: str
    kind: str
    metadata: Metadata


class _Resource(msgspec.Struct, frozen=True):
    """One kind that the API server knows."""

    name: str
    kind: str
    namespaced: bool


class _Resources(msgspec.Struct, frozen=True):
    """All kinds of one group and version."""

    resources: list[_Resource] = []


class Applier:
    """Applies objects, one after another."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[str, _Resources] = {}

    async def apply(self, document: object) -> Applied:
        """Make one object as `document` says, whoever set its fields before; strict on fields."""
        head = msgspec.convert(document, ObjectHead)
        path = await self._path(head)
        label = f"{head.kind.lower()}/{head.metadata.name}"
        before = await self._version(path, label)
        data = await self._transport.request(
            "PATCH",
            f"{path}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict",
            doing=f"apply {label}",
            body=msgspec.json.encode(document),
            content_type=APPLY,
        )
        after = msgspec.json.decode(data, type=ObjectHead).metadata.resource_version
        if before is None:
            return Applied(label, Outcome.CREATED)
        return Applied(label, Outcome.UNCHANGED if before == after else Outcome.CHANGED)

    async def _version(self, path: str, label: str) -> str | None:
        """The version of what is there; none where nothing is."""
        try:
            data = await self._transport.request("GET", path, doing=f"read {label}")
        except ApiError as error:
            if error.not_found:
                return None
            raise
        return msgspec.json.decode(data, type=ObjectHead).metadata.resource_version

    async def _path(self, head: ObjectHead) -> str:
        root = _root(head.api_version)
        resource = await self._resource(root, head)
        place = f"/namespaces/{quote(head.metadata.namespace)}" if resource.namespaced else ""
        return f"{root}{place}/{resource.name}/{quote(head.metadata.name)}"

    async def _resource(self, root: str, head: ObjectHead) -> _Resource:
        if root not in self._known:
            self._known[root] = await self._kinds(root, head)
        for each in self._known[root].resources:
            # Subresources carry a kind as well.
            if each.kind == head.kind and "/" not in each.name:
                return each
        raise _unknown(head)

    async def _kinds(self, root: str, head: ObjectHead) -> _Resources:
        try:
            data = await self._transport.request("GET", root, doing=f"list kinds of {root}")
        except ApiError as error:
            if error.not_found:
                raise _unknown(head) from error
            raise
        try:
            return msgspec.json.decode(data, type=_Resources)
        except msgspec.DecodeError as error:
            raise ClusterError(
                "the API server's answer could not be understood",
                why=f"asked to list kinds of {root}: {error}",
                fix="check that the address in the kubeconfig is a Kubernetes API server",
                retryable=False,
            ) from error


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _unknown(head: ObjectHead) -> PrerequisiteError:
    return PrerequisiteError(
        f"this cluster has no {head.kind} of {head.api_version}",
        why="it is older than what swe-rollout needs, or lacks an extension",
        fix="use Kubernetes 1.31 or newer: `kubectl version` tells which it is",
    )
