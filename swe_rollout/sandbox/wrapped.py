"""Sandboxes and providers that wrap others: a wrapper defines only what differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

from swe_rollout.sandbox.base import (
    MAX_OUTPUT_BYTES,
    ExecResult,
    Markable,
    Reattaching,
    Sandbox,
    SandboxDelta,
    SandboxMark,
    SandboxProvider,
    SandboxRequest,
    Snapshots,
)
from swe_rollout.types.episode import EpisodeId

_T = TypeVar("_T")


class OperationKind(StrEnum):
    """The operations of a sandbox."""

    EXEC = "exec"
    READ = "read"
    WRITE = "write"
    END = "end"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a sandbox, described by what determines its result."""

    kind: OperationKind
    parts: tuple[object, ...] = ()
    """The arguments without the values of variables, which may be secrets, and without time limits,
    which depend on how much time is left."""


class Around(Protocol):
    """Wraps each operation of a sandbox."""

    async def __call__(self, operation: Operation, call: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of an operation, which `call` carries out."""
        ...


class WrappedSandbox(Sandbox):
    """A sandbox whose operations all go through an `Around`."""

    def __init__(self, sandbox: Sandbox, around: Around) -> None:
        self._sandbox = sandbox
        self._around = around

    @property
    def workdir(self) -> str:
        return self._sandbox.workdir

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        asked = command if isinstance(command, str) else tuple(command)
        parts = asked, cwd, sorted(env or ()), stdin, max_output
        call = partial(
            self._sandbox.exec,
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout_s=timeout_s,
            max_output=max_output,
        )
        return await self._around(Operation(OperationKind.EXEC, parts), call)

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        operation = Operation(OperationKind.READ, (path, max_bytes))
        return await self._around(
            operation, partial(self._sandbox.read_file, path, max_bytes=max_bytes)
        )

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        operation = Operation(OperationKind.WRITE, (path, data, mode))
        await self._around(operation, partial(self._sandbox.write_file, path, data, mode=mode))

    async def end_processes(self) -> None:
        await self._around(Operation(OperationKind.END), self._sandbox.end_processes)

    async def close(self) -> None:
        await self._sandbox.close()


class WrappedSnapshots(WrappedSandbox, Snapshots):
    """A wrapped sandbox with snapshots, which are taken directly from it."""

    def __init__(self, sandbox: Sandbox, around: Around) -> None:
        super().__init__(sandbox, around)
        if not isinstance(sandbox, Snapshots):
            raise TypeError("the sandbox has no snapshots")
        self._snapshots: Snapshots = sandbox

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        return await self._snapshots.changes(since=since)

    async def apply(self, delta: SandboxDelta) -> None:
        await self._snapshots.apply(delta)

    async def mark(self) -> SandboxMark | None:
        """Return the mark of the sandbox; None if it has none."""
        return await self._sandbox.mark() if isinstance(self._sandbox, Markable) else None


class WrappedSandboxes:
    """A `SandboxProvider` that forwards everything; subclasses override what differs."""

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider

    async def start(self, request: SandboxRequest) -> Sandbox:
        return await self._provider.start(request)

    async def attach(
        self, request: SandboxRequest, mark: SandboxMark, *, life: int, delta: int
    ) -> Sandbox | None:
        if not isinstance(self._provider, Reattaching):
            return None
        return await self._provider.attach(request, mark, life=life, delta=delta)

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        self._provider.prewarm(requests)

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        await self._provider.delete_orphans(episodes)

    async def aclose(self) -> None:
        await self._provider.aclose()


class AbsentSandbox(Sandbox):
    """A placeholder without a sandbox: each operation raises an error."""

    def __init__(self, workdir: str, error: Callable[[], Exception]) -> None:
        """`error` creates the error that an operation raises."""
        self._workdir = workdir
        self._error = error

    @property
    def workdir(self) -> str:
        return self._workdir

    async def exec(self, command: str | Sequence[str], **_: object) -> ExecResult:
        del command
        raise self._error()

    async def read_file(self, path: str, *, max_bytes: int = 0) -> bytes:
        del path, max_bytes
        raise self._error()

    async def write_file(self, path: str, data: bytes, *, mode: int = 0) -> None:
        del path, data, mode
        raise self._error()

    async def end_processes(self) -> None:
        raise self._error()

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
