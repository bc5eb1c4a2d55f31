"""`kubernetes.aio`: one exec for each command. It speaks v4: a command's stdin never ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, cast

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.stream import WsApiClient

from rollout_dev.exec_clients.base import ClientTarget, CommandResult

_CHUNK = 1 << 20
_STDIN, _STDOUT, _STDERR, _STATUS = b"\0", 1, 2, 3


_Opening: TypeAlias = "AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]"


class _Connected:
    def __init__(self, target: ClientTarget) -> None:
        self._target = target
        self._client: WsApiClient | None = None
        self._connecting = asyncio.Lock()

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()  # type: ignore[no-untyped-call]

    async def _api(self) -> client.CoreV1Api:
        async with self._connecting:
            if self._client is None:
                access = client.Configuration()
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=self._target.kubeconfig,
                    context=self._target.context,
                    client_configuration=access,
                )
                self._client = WsApiClient(  # type: ignore[no-untyped-call]
                    configuration=access
                )
        return client.CoreV1Api(self._client)


class Aio(_Connected):
    """The call that its users make: stdout and stderr as one text, no exit code, no stdin."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        if stdin:
            raise NotImplementedError("this call has no stdin")
        api = await self._api()
        async with asyncio.timeout(timeout_s):
            text = await api.connect_get_namespaced_pod_exec(
                self._target.pod,
                self._target.namespace,
                container=self._target.container,
                command=list(argv),
                stdin=False,
                stdout=True,
                stderr=True,
                tty=False,
            )
        return CommandResult(None, text.encode())


class AioByHand(_Connected):
    """Its WebSocket, with frames decoded here; the exit code is decoded by its own parser."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        api = await self._api()
        async with asyncio.timeout(timeout_s):
            opening = await api.connect_get_namespaced_pod_exec_without_preload_content(
                self._target.pod,
                self._target.namespace,
                container=self._target.container,
                command=list(argv),
                stdin=bool(stdin),
                stdout=True,
                stderr=True,
                tty=False,
            )
            # Its signature promises an HTTP response; it is a WebSocket that is about to open.
            async with cast("_Opening", opening) as opened:
                for start in range(0, len(stdin), _CHUNK):
                    await opened.send_bytes(_STDIN + stdin[start : start + _CHUNK])
                return await _read(opened)


async def _read(opened: aiohttp.ClientWebSocketResponse) -> CommandResult:
    parts: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: [], _STATUS: []}
    async for message in opened:
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise ConnectionError(f"not a message: {message.data}")
        if message.data:
            parts.get(message.data[0], []).append(message.data[1:])
    status = b"".join(parts[_STATUS])
    return CommandResult(
        _parsed(status) if status else None,
        b"".join(parts[_STDOUT]),
        b"".join(parts[_STDERR]),
    )


def _parsed(status: bytes) -> int:
    code = WsApiClient.parse_error_data(status)  # type: ignore[no-untyped-call]
    return int(code)
