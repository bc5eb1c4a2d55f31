"""The official `kubernetes` client, blocking: one exec for each command, in a thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, cast

import kubernetes
from kubernetes.stream import stream

from rollout_dev.exec_clients.base import ClientTarget, CommandResult, in_thread

_CHUNK = 1 << 20
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class _Socket(Protocol):
    """The part of `WSClient` in binary mode that is used."""

    returncode: int | None

    def is_open(self) -> bool: ...
    def update(self, timeout: float) -> None: ...
    def write_channel(self, channel: int, data: bytes) -> None: ...
    def close_channel(self, channel: int) -> None: ...
    def read_channel(self, channel: int) -> bytes: ...
    def close(self) -> None: ...


class Official:
    """`kubernetes.stream.stream`; each client object serves one call at a time."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target
        self._idle: list[kubernetes.client.CoreV1Api] = []

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        return await in_thread(lambda: self._run(argv, stdin, timeout_s))

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().api_client.close()

    def _run(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> CommandResult:
        api = self._idle.pop() if self._idle else self._connect()
        opened = self._open(api, argv, stdin=bool(stdin))
        try:
            _write(opened, stdin)
            end = time.monotonic() + timeout_s
            while opened.is_open() and (left := end - time.monotonic()) > 0:
                opened.update(timeout=left)
            if opened.is_open():
                return CommandResult(None, b"", timed_out=True)
            code = opened.returncode
            return CommandResult(code, opened.read_channel(_STDOUT), opened.read_channel(_STDERR))
        finally:
            opened.close()
            self._idle.append(api)

    def _connect(self) -> kubernetes.client.CoreV1Api:
        made = kubernetes.config.new_client_from_config(  # type: ignore[no-untyped-call]
            config_file=self._target.kubeconfig, context=self._target.context
        )
        return kubernetes.client.CoreV1Api(made)

    def _open(
        self, api: kubernetes.client.CoreV1Api, argv: Sequence[str], *, stdin: bool
    ) -> _Socket:
        opened = stream(
            api.connect_get_namespaced_pod_exec,
            self._target.pod,
            self._target.namespace,
            container=self._target.container,
            command=list(argv),
            stdin=stdin,
            stdout=True,
            stderr=True,
            tty=False,
            binary=True,
            _preload_content=False,
        )
        return cast("_Socket", opened)


def _write(opened: _Socket, stdin: bytes) -> None:
    for start in range(0, len(stdin), _CHUNK):
        opened.write_channel(_STDIN, stdin[start : start + _CHUNK])
    if stdin:
        opened.close_channel(_STDIN)
