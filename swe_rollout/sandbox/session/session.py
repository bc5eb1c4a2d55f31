"""Session: commands and files of a sandbox, many at a time, over one stream.

This module builds requests to the supervisor and interprets its results. `client` makes requests
survive a stream that breaks. Providers decide where the stream comes from.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Self

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, SandboxDelta
from swe_rollout.sandbox.session import walk
from swe_rollout.sandbox.session.channel import Channel, StreamOpener
from swe_rollout.sandbox.session.client import SupervisorClient
from swe_rollout.sandbox.session.frames import (
    Bare,
    Read,
    RequestKind,
    Run,
    SupervisorState,
    Write,
    parse_pong,
)
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.sandbox.session.walk import Walk

_GRACE_S = 30.0
"""Time beyond a command's own deadline after which the supervisor counts as hung."""
_PING_S = 10.0
_CLEAR_S = 30.0
_SLOWEST_BYTES_PER_S = 1 << 20
_FILE_S = 120.0
_KILLED_CODES = (137, 143)
_SIGNALLED = 128
"""Exit codes above this are those of a process that a signal has ended."""
_OF_CONNECTIONS = (errno.ETIMEDOUT, errno.EPIPE, errno.ECONNREFUSED, errno.ECONNRESET)
"""Python has classes of their own for these, which mean a connection of this process."""
_WALK_S: Final = 180.0
"""For a walk over all files; the supervisor ends it after two minutes."""
_TRIES: Final = 3
"""Commands can kill the process that walks."""
_KILLED: Final = 128
_SMALL_BYTES: Final = 64 << 10
_RECORDED: Final = ExecResult(exit_code=0, stdout=b"", stderr=b"")


class Session:
    """A `Sandbox` behind a stream to its supervisor."""

    def __init__(
        self,
        client: SupervisorClient,
        *,
        workdir: str,
        env: Mapping[str, str],
        trees: Mapping[str, str] | None,
    ) -> None:
        """Use `Session.open`."""
        self._client = client
        self.workdir = workdir
        self._env = dict(env)
        self._snapshots = SessionSnapshots(client, trees)

    @classmethod
    async def open(
        cls,
        channel: Channel,
        *,
        workdir: str,
        env: Mapping[str, str] | None = None,
        trees: Mapping[str, str] | None = None,
        opener: StreamOpener | None = None,
        timeout_s: float = 30.0,
        life: SessionLife | None = None,
    ) -> Self:
        """Start a session over a channel that runs one of the commands of `bootstrap`.

        `env` is added to every command. Deltas are of the folders `trees`, by name; without them,
        of every mount that the sandbox may write to. A lost stream is replaced by one that `opener`
        opens; without an opener, the sandbox is lost too. `life` is for sessions that processes
        continue. Closes the channel and the opener on failure.
        """
        client = await SupervisorClient.open(
            channel, opener=opener, timeout_s=timeout_s, life=life or SessionLife()
        )
        return cls(client, workdir=workdir, env=env or {}, trees=trees)

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
        run = Run(
            command=command,
            cwd=self._absolute(cwd or ""),
            env={**self._env, **(env or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            max_output=max_output,
        )
        await self._snapshots.ready()
        started = time.monotonic()
        patience_s = timeout_s + _GRACE_S + len(stdin) / _SLOWEST_BYTES_PER_S
        result = await self._client.request(run, timeout_s=patience_s)
        code = result.exit_code
        return replace(
            result,
            exit_code=137 if result.timed_out and code not in _KILLED_CODES else code,
            duration_s=time.monotonic() - started,
        )

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        full = self._absolute(path)
        result = await self._client.request_within(Read(full, max_bytes + 1), timeout_s=_FILE_S)
        _check_file(result, full)
        if result.stdout_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes", full)
        return result.stdout

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self._snapshots.ready()
        full = self._absolute(path)
        patience_s = _FILE_S + len(data) / _SLOWEST_BYTES_PER_S
        result = await self._client.request_within(Write(full, data, mode), timeout_s=patience_s)
        _check_file(result, full)

    async def ping(self, *, timeout_s: float = _PING_S) -> None:
        """Return when the supervisor has answered; keeps an idle stream alive."""
        await self._client.request(Bare(RequestKind.PING), timeout_s=timeout_s)

    async def state(self) -> SupervisorState | None:
        """Return how much the supervisor has done; none where an earlier version runs there."""
        result = await self._client.request(Bare(RequestKind.PING), timeout_s=_PING_S)
        return parse_pong(result.stdout)

    def follow(self, number: int) -> None:
        """Go on with the deltas of the process before, after the one of this number."""
        self._snapshots.follow(number)

    async def end_processes(self) -> None:
        result = await self._client.request(Bare(RequestKind.CLEAR), timeout_s=_CLEAR_S)
        if not result.ok:
            raise SandboxError(
                "processes of the sandbox do not end",
                why=result.stderr.decode(errors="replace") or f"exit code {result.exit_code}",
                fix="look for processes in an uninterruptible state on the node",
            )

    def track(self) -> None:
        """Make `changes` those since now; the next command waits for a walk over all files."""
        self._snapshots.track()

    async def record(self) -> None:
        """Take that walk now, while nobody waits for a command."""
        await self._snapshots.record()

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        return await self._snapshots.changes(since)

    async def apply(self, delta: SandboxDelta) -> None:
        await self._snapshots.apply(delta)

    async def check_workdir(self, why: str) -> None:
        """Check that the workdir exists; SandboxError, with `why`, when the image has none."""
        if not (await self.exec(["test", "-d", self.workdir], cwd="/")).ok:
            raise SandboxError(
                f"the image has no folder {self.workdir}",
                why=why,
                fix="correct the instance's workdir, or its image",
                retryable=False,
            )

    async def close(self) -> None:
        await self._client.close()

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.workdir, path) if path else self.workdir


def _check_file(result: ExecResult, path: str) -> None:
    """Raise what the system call would raise, if the request failed.

    Files are read and written by processes of the sandbox, which its commands may stop, kill, or
    leave no room for, and its paths lead to whatever the kernel shows there. So no such failure is
    one of the sandbox: it would let a policy break off its episode as it likes.
    """
    if result.exit_code == 0 and not result.timed_out:
        return
    match result.exit_code:
        case _ if result.timed_out:
            raise OSError(errno.EBUSY, "the access took too long", path)
        case code if code > _SIGNALLED:
            raise OSError(errno.EINTR, "a signal ended the access", path)
        case code if code in errno.errorcode and code not in _OF_CONNECTIONS:
            raise OSError(code, os.strerror(code), path)
        case code:
            why = result.stderr.decode("utf-8", "replace").strip() or f"exit code {code}"
            raise OSError(errno.EIO, why, path)


class SessionSnapshots:
    """Deltas of a session's files. Requests that change files wait while they are recorded."""

    def __init__(self, client: SupervisorClient, trees: Mapping[str, str] | None) -> None:
        """Record nothing before `track`."""
        self._client = client
        self._trees = trees
        self._lock = asyncio.Lock()
        self._number = -1
        """Of the delta that the next one follows; -1: nothing was recorded."""
        self._is_outdated = False
        """Whether the moment of `_number` is still to be recorded."""
        self._recording: asyncio.Future[ExecResult] | None = None

    def track(self) -> None:
        """Let what is there be recorded before the first change, unless that was done before.

        Not at once: a delta may be applied first, and takes its place.
        """
        if self._number < 0:
            self._number, self._is_outdated = 0, True

    async def record(self) -> None:
        """Record what is there now, so that nobody waits for it later."""
        self.track()
        await self.ready()

    def follow(self, number: int) -> None:
        """Take it that the supervisor has recorded this moment, for another process."""
        recorded = asyncio.get_running_loop().create_future()
        recorded.set_result(_RECORDED)
        self._number, self._is_outdated, self._recording = number, False, recorded

    async def ready(self) -> None:
        """Return when files may change: what was there before is recorded, or can't be."""
        if self._is_outdated:
            self._record()
        if self._recording is not None and not self._recording.done():
            await asyncio.wait({self._recording})

    async def changes(self, since: int | None) -> SandboxDelta:
        """Return the delta that follows number `since`; by default, that returned last."""
        async with self._lock:
            await self.ready()
            if since is None:
                since = self._tracked()
            if self._recording is not None and not (recorded := self._recording.result()).ok:
                return walk.delta_of(recorded, since + 1)
            for _ in range(_TRIES):
                result = await self._request(RequestKind.CHANGES, since + 1)
                if result.timed_out or result.exit_code < _KILLED:
                    break
            if result.exit_code == errno.ESTALE:
                raise SandboxError(
                    f"there is no delta after number {since}",
                    why="the sandbox keeps the last two moments alone",
                    fix="ask for what follows the delta that was returned last",
                )
            make = partial(walk.delta_of, result, since + 1)
            # A small one is compressed before a thread would begin.
            is_small = len(result.stdout) <= _SMALL_BYTES
            delta = make() if is_small else await asyncio.to_thread(make)
            self._number = delta.number
            return delta

    async def apply(self, delta: SandboxDelta) -> None:
        """Bring the files to the state of a delta; the next one is relative to it."""
        async with self._lock:
            if self._recording is not None:
                await asyncio.wait({self._recording})
            records = await asyncio.to_thread(walk.records_of, delta)
            self._number, self._is_outdated = delta.number, True
            walk.check_restored(await self._request(RequestKind.RESTORE, 0, records))

    def _record(self) -> None:
        self._is_outdated = False
        self._recording = asyncio.create_task(self._request(RequestKind.TRACK, self._number))
        # Its error, of a lost sandbox, is that of the next request as well.
        self._recording.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _tracked(self) -> int:
        if self._recording is None:
            raise SandboxError(
                "the sandbox has no snapshots",
                why="what it held when it was handed out was not recorded",
                fix="start it with SandboxRequest(snapshots=True)",
                retryable=False,
            )
        return self._number

    async def _request(self, kind: RequestKind, number: int, records: bytes = b"") -> ExecResult:
        request = Walk(kind, self._trees, number, records)
        return await self._client.request_within(request, timeout_s=_WALK_S)
