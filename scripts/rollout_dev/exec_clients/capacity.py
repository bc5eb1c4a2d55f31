"""Count the small pods that the nodes have room for."""

from __future__ import annotations

import msgspec

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient

_SPARE = 8
"""Pods left to others on each node."""


class _Allocatable(msgspec.Struct):
    pods: str = "0"


class _Status(msgspec.Struct):
    allocatable: _Allocatable


class _Node(msgspec.Struct):
    status: _Status


class _Nodes(msgspec.Struct):
    items: list[_Node]


class _Pod(msgspec.Struct):
    pass


class _Pods(msgspec.Struct):
    items: list[_Pod]


async def room_for(client: ClusterClient, *, most: int) -> int:
    """Free pods on all nodes, at most `most`; `most` without the right to list nodes."""
    try:
        nodes = await client.transport.request("GET", "/api/v1/nodes", doing="list nodes")
        pods = await client.transport.request("GET", "/api/v1/pods", doing="list all pods")
    except ApiError as error:
        if not error.forbidden:
            raise
        return most
    listed = msgspec.json.decode(nodes, type=_Nodes).items
    capacity = [int(node.status.allocatable.pods) for node in listed]
    used = len(msgspec.json.decode(pods, type=_Pods).items)
    return max(1, min(most, sum(capacity) - used - _SPARE * len(capacity)))
