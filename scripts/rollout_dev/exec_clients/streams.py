"""The floor: one exec stream that stays open, with as little as possible at its other end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget
from swe_rollout.cluster.objects import PODS

if TYPE_CHECKING:
    import aiohttp

ECHO: Final = ("cat",)
SHELL: Final = ("sh", "-c", "while read -r line; do /bin/true; echo done; done")
_STDIN = b"\0"
_STDOUT = 1


class Stream:
    """A raw WebSocket to one program in a pod: a line goes in, a line comes back."""

    def __init__(self, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = opened

    @classmethod
    async def open(
        cls, client: ClusterClient, target: ExecTarget, program: Sequence[str]
    ) -> Stream:
        """Start `program` in the container."""
        query = [("command", word) for word in program]
        query += [("container", target.container), ("stdin", "true"), ("stdout", "true")]
        path = PODS.path(target.namespace, f"{target.pod}/exec", query)
        opened = await client.transport.websocket(
            path, doing=f"exec in {target.pod}", protocols=("v5.channel.k8s.io",)
        )
        return cls(opened)

    async def turn(self) -> None:
        """Send one line and wait for one back."""
        await self._socket.send_bytes(_STDIN + b"true\n")
        await self.line()

    async def line(self) -> None:
        """Wait until the program has written a line."""
        while True:
            frame = await self._socket.receive_bytes()
            if frame[0] == _STDOUT and frame.endswith(b"\n"):
                return

    async def aclose(self) -> None:
        """Close the socket; the program then sees the end of its stdin."""
        await self._socket.close()
