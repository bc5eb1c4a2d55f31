"""Successful responses of an API server, decoded: objects, lists, and the changes of a watch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import aiohttp
import msgspec

from swe_rollout.cluster.api_error import UNDECODABLE, api_error
from swe_rollout.cluster.objects import Decoded, Head, Kind, ListMetadata, Status
from swe_rollout.errors import ClusterError, UnreachableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The objects of a list."""

    items: tuple[T, ...]
    version: str
    """The resource version from which a watch continues."""
    following: str = ""
    """Where the next page begins; empty on the last one."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One event of a watch."""

    version: str
    """The resource version from which an interrupted watch continues."""
    object: T | None = None
    """The object after the change; None for a bookmark, which only moves the version."""
    deleted: bool = False


class _List(Decoded, frozen=True):
    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None


class _Event(Decoded, frozen=True):
    type: str
    object: msgspec.Raw


class UnreadableWatchError(UnreachableError):
    """Something other than an API server wrote into a watch."""


def read_list(data: bytes, kind: Kind[T], *, doing: str) -> Listed[T]:
    """Decode a list; raises ClusterError if the response is not a list."""
    found = decode_response(data, _List, doing=doing)
    items = tuple(decode(kind, each, doing=doing) for each in found.items or ())
    return Listed(items, found.metadata.resource_version, found.metadata.continue_)


async def read_changes(
    stream: aiohttp.StreamReader, kind: Kind[T], *, doing: str
) -> AsyncIterator[Change[T]]:
    """Decode a watch; raises the ApiError that the server sends in its stream.

    Raises UnreadableWatchError for a line that is not an event, such as a proxy's page.
    """
    try:
        async for line in read_lines(stream):
            event = msgspec.json.decode(line, type=_Event)
            match event.type:
                case "ERROR":
                    status = msgspec.json.decode(event.object, type=Status)
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
    return msgspec.json.decode(data, type=Head).metadata.resource_version


def decode(kind: Kind[T], data: bytes, *, doing: str) -> T:
    """Decode an object; raises ClusterError if the response is not of that kind."""
    try:
        return kind.decode(data)
    except UNDECODABLE as error:
        raise undecodable(doing, error) from error


def decode_response(data: bytes, kind: type[T], *, doing: str) -> T:
    """Decode a successful response; raises ClusterError when it is not a Kubernetes object."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        raise undecodable(doing, error) from error


def undecodable(doing: str, error: Exception) -> ClusterError:
    """Build the error for a successful response that is not the object it should be."""
    return ClusterError(
        "the API server's response can't be decoded",
        why=f"asked to {doing}: {error}",
        fix="check that the address in the kubeconfig is a Kubernetes API server",
        retryable=False,
    )
