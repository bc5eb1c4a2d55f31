"""Exec clients of other projects: each runs a command in a container with its own exec.

A client's package is imported only when it is bound: it may not be installed, and takes seconds.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from rollout_dev.exec_clients.base import ClientTarget, CommandResult, Runner, in_thread
from rollout_dev.peers import environment

if TYPE_CHECKING:
    import kubernetes
    from kubernetes.aio import client as aio_client

_CHUNK = 1 << 20
_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Peer:
    """An exec client of another project."""

    name: str
    bind: Callable[[ClientTarget], Runner]
    missing: str = ""
    """How to install it; empty if it is installed."""


def peers() -> tuple[Peer, ...]:
    """Return all peers, installed or not."""
    kubectl = "" if shutil.which("kubectl") else _KUBECTL
    return (
        Peer("kubernetes", Official),
        Peer("kubernetes.aio", Aio),
        Peer("kubernetes.aio, frames by hand", AioByHand),
        Peer("lightkube", Light, _missing("lightkube", environment.HOW)),
        Peer("kubectl exec", Kubectl, kubectl),
        Peer("kodo", Kodo, _missing("kodo", _KODO)),
    )


_KODO = "in .peers/venv: pip install git+https://github.com/baidubce/kodo"
_KUBECTL = "install kubectl, or eval the output of scripts/dev-cluster up"


def _missing(package: str, how: str) -> str:
    return "" if environment.is_installed(package) else how


class ClientError(Exception):
    """A failure of a client itself, not of the command."""


class Kubectl:
    """`kubectl exec`: one process for each command."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "--kubeconfig", self._target.kubeconfig),
            *("--context", self._target.context),
            *("--namespace", self._target.namespace, "exec", self._target.pod),
            *("--container", self._target.container, *(["--stdin"] if stdin else []), "--", *argv),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout_s):
                stdout, stderr = await process.communicate(stdin or None)
        except TimeoutError:
            return CommandResult(None, b"", timed_out=True)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        # kubectl's own line about the exit code is not the command's output.
        code_line = re.search(rb"command terminated with exit code (\d+)\n\Z", stderr)
        if code_line is None and process.returncode:
            raise ClientError(stderr.decode(errors="replace").strip())
        if code_line is not None:
            stderr = stderr[: code_line.start()]
        return CommandResult(process.returncode, stdout, stderr)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class Kodo:
    """kodo's `KubernetesManager`: merged text, and an exit code as text.

    It always uses the current context.
    """

    def __init__(self, target: ClientTarget) -> None:
        from kodo.core import (  # type: ignore[import-not-found]  # noqa: PLC0415
            KubernetesManager,
        )

        self._target = target
        self._manager = KubernetesManager(target.namespace, target.kubeconfig)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        if stdin:
            raise NotImplementedError("kodo has no stdin")
        pod, command = self._target.pod, shlex.join(argv)
        text, verdict = await in_thread(
            lambda: self._manager.execute_command(pod, command, timeout=round(timeout_s))
        )
        if verdict == "-1":
            raise ClientError(text)
        code = re.search(r"\d+", verdict)
        return CommandResult(int(code.group()) if code else None, text.encode())

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class Light:
    """lightkube's `AsyncClient.exec`, with bytes."""

    def __init__(self, target: ClientTarget) -> None:
        from lightkube import (  # type: ignore[import-not-found]  # noqa: PLC0415
            AsyncClient,
            KubeConfig,
        )

        access = KubeConfig.from_file(target.kubeconfig).get(context_name=target.context)
        self._client = AsyncClient(config=access)
        self._target = target

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        found = await self._client.exec(
            self._target.pod,
            namespace=self._target.namespace,
            container=self._target.container,
            command=list(argv),
            stdin=stdin or None,
            stdout=True,
            stderr=True,
            decode=None,
            timeout=timeout_s,
        )
        return CommandResult(found.exit_code, found.stdout or b"", found.stderr or b"")

    async def aclose(self) -> None:
        await self._client.close()


class Official:
    """The blocking `kubernetes` client, in threads; a client object serves one call at a time."""

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
        from kubernetes.stream import stream  # noqa: PLC0415

        api = self._idle.pop() if self._idle else self._connect()
        opened = stream(
            api.connect_get_namespaced_pod_exec,
            *_exec_arguments(self._target),
            **_exec_options(self._target, argv, stdin=bool(stdin)),
            binary=True,
            _preload_content=False,
        )
        try:
            for start in range(0, len(stdin), _CHUNK):
                opened.write_channel(_STDIN, stdin[start : start + _CHUNK])
            if stdin:
                opened.close_channel(_STDIN)
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
        import kubernetes  # noqa: PLC0415

        made = kubernetes.config.new_client_from_config(  # type: ignore[no-untyped-call]
            config_file=self._target.kubeconfig, context=self._target.context
        )
        return kubernetes.client.CoreV1Api(made)


class _Connected:
    """The client `kubernetes.aio`, which speaks v4: a command's stdin never ends."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target
        self._client: Any = None  # untyped
        self._connecting = asyncio.Lock()

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _api(self) -> aio_client.CoreV1Api:
        from kubernetes.aio import client, config  # noqa: PLC0415
        from kubernetes.aio.stream import WsApiClient  # noqa: PLC0415

        async with self._connecting:
            if self._client is None:
                access = client.Configuration()
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=self._target.kubeconfig,
                    context=self._target.context,
                    client_configuration=access,
                )
                self._client = cast("Any", WsApiClient)(configuration=access)
        return client.CoreV1Api(self._client)


class Aio(_Connected):
    """The call as its users make it: stdout and stderr as one text, no exit code, no stdin."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        if stdin:
            raise NotImplementedError("this call has no stdin")
        api = await self._api()
        async with asyncio.timeout(timeout_s):
            text = await api.connect_get_namespaced_pod_exec(
                *_exec_arguments(self._target), **_exec_options(self._target, argv, stdin=False)
            )
        return CommandResult(None, text.encode())


class AioByHand(_Connected):
    """Its WebSocket with our own frame decoder; its own parser decodes the exit code."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        api = await self._api()
        async with asyncio.timeout(timeout_s):
            opening = await api.connect_get_namespaced_pod_exec_without_preload_content(
                *_exec_arguments(self._target),
                **_exec_options(self._target, argv, stdin=bool(stdin)),
            )
            # Its signature promises an HTTP response, but it is a WebSocket that is about to open.
            socket = cast("AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]", opening)
            async with socket as opened:
                for start in range(0, len(stdin), _CHUNK):
                    await opened.send_bytes(bytes([_STDIN]) + stdin[start : start + _CHUNK])
                return await self._read(opened)

    async def _read(self, opened: aiohttp.ClientWebSocketResponse) -> CommandResult:
        parts: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: [], _STATUS: []}
        async for message in opened:
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise ConnectionError(f"not a message: {message.data}")
            if message.data:
                parts.get(message.data[0], []).append(message.data[1:])
        status = b"".join(parts[_STATUS])
        code = int(self._client.parse_error_data(status)) if status else None
        return CommandResult(code, b"".join(parts[_STDOUT]), b"".join(parts[_STDERR]))


def _exec_arguments(target: ClientTarget) -> tuple[str, str]:
    return target.pod, target.namespace


def _exec_options(target: ClientTarget, argv: Sequence[str], *, stdin: bool) -> dict[str, Any]:
    """Return the options of an exec, whose generated functions accept anything."""
    return {
        "container": target.container,
        "command": list(argv),
        "stdin": stdin,
        "stdout": True,
        "stderr": True,
        "tty": False,
    }
