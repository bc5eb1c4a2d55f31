"""Session: commands and files of a sandbox, many at a time, over one stream.

This module builds requests to the supervisor and interprets its results. `client` makes requests
survive a stream that breaks. Providers decide where the stream comes from.
"""

from __future__ import annotations

import errno
import os
import posixpath
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult
from swe_rollout.sandbox.session.channel import Channel, StreamOpener
from swe_rollout.sandbox.session.client import SupervisorClient
from swe_rollout.sandbox.session.frames import (
    Request,
    RequestKind,
    SupervisorState,
    parse_pong,
    read_request,
    run_request,
    write_request,
)
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.sandbox.session.walk import SessionSnapshots

_GRACE_S = 30.0
"""Time beyond a command's own deadline after which the supervisor counts as hung."""
_PING_S = 10.0
_CLEAR_S = 30.0
_SLOWEST_BYTES_PER_S = 1 << 20
_FILE_S = 120.0
_KILLED_CODES = (137, 143)
_SIGNALLED = 128
"""Exit codes above this belong to processes ended by a signal."""
_OF_CONNECTIONS = (errno.ETIMEDOUT, errno.EPIPE, errno.ECONNREFUSED, errno.ECONNRESET)
"""Python maps these to classes that mean a connection of this process."""


class Session(SessionSnapshots):
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
        super().__init__(client, trees)
        self.workdir = workdir
        self._env = dict(env)

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

        `env` is added to every command. Deltas cover the folders `trees`, by name; by default,
        every mount that the sandbox may write to. A lost stream is replaced by one that `opener`
        opens; without an opener, the sandbox is lost too. `life` is for sessions that other
        processes continue. Closes the channel and the opener on failure.
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
        run = run_request(
            command,
            shell=self._client.shell,
            cwd=self._absolute(cwd or ""),
            env={**self._env, **(env or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            max_output=max_output,
        )
        await self.ready()
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
        result = await self._client.request_within(
            read_request(full, max_bytes + 1), timeout_s=_FILE_S
        )
        _check_file(result, full)
        if result.stdout_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes", full)
        return result.stdout

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self.ready()
        full = self._absolute(path)
        patience_s = _FILE_S + len(data) / _SLOWEST_BYTES_PER_S
        request = write_request(full, data, mode)
        result = await self._client.request_within(request, timeout_s=patience_s)
        _check_file(result, full)

    async def ping(self, *, timeout_s: float = _PING_S) -> None:
        """Return once the supervisor has responded; keeps an idle stream alive."""
        await self._client.request(Request(RequestKind.PING), timeout_s=timeout_s)

    async def state(self) -> SupervisorState | None:
        """Return how much the supervisor has done; None if an earlier version runs there."""
        result = await self._client.request(Request(RequestKind.PING), timeout_s=_PING_S)
        return parse_pong(result.stdout)

    async def end_processes(self) -> None:
        result = await self._client.request(Request(RequestKind.CLEAR), timeout_s=_CLEAR_S)
        if not result.ok:
            raise SandboxError(
                "processes of the sandbox do not end",
                why=result.stderr.decode(errors="replace") or f"exit code {result.exit_code}",
                fix="look for processes in an uninterruptible state on the node",
            )

    async def check_workdir(self, why: str) -> None:
        """Check that the workdir exists; raises SandboxError, with `why`, if the image has none."""
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

    Files are read and written by processes in the sandbox. Its commands may stop or kill these,
    leave no room for them, or point paths at anything. So no such failure counts against the
    sandbox: otherwise a policy could break off its episode at will.
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
