"""Session: commands and files of a sandbox over one channel, many at a time.

Starts `supervisor.sh` at the far end, sends requests one frame after the other, and hands each
answer to the call it belongs to. Where the channel comes from is not known here.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from swe_rollout.errors import SandboxError, boundary
from swe_rollout.sandbox import files
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult
from swe_rollout.sandbox.frames import (
    FrameReader,
    Header,
    Job,
    Result,
    kill_frame,
    ping_frame,
    run_frames,
    supervisor_command,
    supervisor_program,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence

    from swe_rollout.sandbox.channel import Channel

__all__ = ["Session", "supervisor_command"]

_GRACE_S = 30.0
"""What an answer may take beyond the command's own time before the supervisor counts as wedged."""
_SLOWEST_BYTES_PER_S = 1 << 20
_FILE_S = 120.0
_KILLED_CODES = (137, 143)
_NOTHING = Result(
    exit_code=0, timed_out=False, stdout=b"", stdout_bytes=0, stderr=b"", stderr_bytes=0
)


@dataclass(frozen=True, slots=True)
class _Call:
    answer: asyncio.Future[Result]
    max_output: int


class Session:
    """A supervisor at work in a sandbox: the commands and files of `Sandbox`."""

    def __init__(self, channel: Channel, *, workdir: str, env: Mapping[str, str]) -> None:
        """Use `Session.open`."""
        self._workdir = workdir
        self._channel = channel
        self._env = dict(env)
        self._calls: dict[int, _Call] = {}
        self._last_number = 0
        self._lost: SandboxError | None = None
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        channel: Channel,
        *,
        workdir: str,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Self:
        """A session whose supervisor answers; the channel must run `supervisor_command()`.

        `env` is added to every command. Where this fails, the channel is closed.
        """
        session = cls(channel, workdir=workdir, env=env or {})
        reader = FrameReader(channel)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(channel.close)
            await _start(channel, reader, timeout_s=timeout_s)
            stack.pop_all()
        session._spawn(session._read(reader))
        return session

    @property
    def workdir(self) -> str:
        """Where commands start and relative paths begin, as a path inside."""
        return self._workdir

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
        """What the command did; see `Sandbox.exec`. Cancelling kills the command."""
        job = Job(
            command=command,
            cwd=self._absolute(cwd or ""),
            env={**self._env, **(env or {})},
            stdin=stdin,
            timeout_s=timeout_s,
            max_output=max_output,
        )
        started = time.monotonic()
        result = await self._run(job)
        code = result.exit_code
        return ExecResult(
            exit_code=137 if result.timed_out and code not in _KILLED_CODES else code,
            stdout=result.stdout,
            stderr=result.stderr,
            timed_out=result.timed_out,
            stdout_bytes=result.stdout_bytes,
            stderr_bytes=result.stderr_bytes,
            duration_s=time.monotonic() - started,
        )

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """The bytes of a file; see `Sandbox.read_file`."""
        full = self._absolute(path)
        command = files.read_command(full, max_bytes)
        result = await self._run(_file_job(command, max_output=max_bytes + 1))
        return files.content(result, full, max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file; see `Sandbox.write_file`."""
        full = self._absolute(path)
        command = files.write_command(full, len(data), mode)
        files.check_written(await self._run(_file_job(command, stdin=data)), full)

    async def ping(self, *, timeout_s: float = 30.0) -> None:
        """Return when the supervisor has answered: proof of life, and data on an idle stream."""
        number = self._next_number()
        await self._call(number, [ping_frame(number)], max_output=0, timeout_s=timeout_s)

    async def close(self) -> None:
        """End the session, its supervisor and all commands. Idempotent; never raises."""
        self._lose(SandboxError("the sandbox is closed", fix="use it before close()"))
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(SandboxError):
            await self._channel.close()

    def _absolute(self, path: str) -> str:
        return posixpath.join(self._workdir, path)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    async def _run(self, job: Job) -> Result:
        number = self._next_number()
        return await self._call(
            number,
            run_frames(number, job),
            max_output=job.max_output,
            timeout_s=job.timeout_s + _GRACE_S + len(job.stdin) / _SLOWEST_BYTES_PER_S,
        )

    async def _call(
        self, number: int, frames: Iterable[bytes], *, max_output: int, timeout_s: float
    ) -> Result:
        if self._lost is not None:
            raise _again(self._lost)
        call = _Call(asyncio.get_running_loop().create_future(), max_output)
        self._calls[number] = call
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(call, frames)
        except TimeoutError:
            wedged = _wedged(timeout_s)
            self._lose(wedged)
            raise wedged from None
        except asyncio.CancelledError:
            if self._lost is None:
                self._spawn(self._send(kill_frame(number)))
            raise
        finally:
            # A cancelled answer still marks the bytes to skip when they come.
            call.answer.cancel()

    async def _exchange(self, call: _Call, frames: Iterable[bytes]) -> Result:
        for frame in frames:
            # A task of its own: half a frame, cut by a cancellation, would end the session.
            sending = self._spawn(self._send(frame))
            either: set[asyncio.Future[None] | asyncio.Future[Result]] = {sending, call.answer}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.answer.done():
                break
        return await call.answer

    async def _send(self, frame: bytes) -> None:
        async with self._sending:
            try:
                async with boundary(SandboxError, "sending to the sandbox"):
                    await self._channel.send(frame)
            except SandboxError as error:
                self._lose(error)

    async def _read(self, reader: FrameReader) -> None:
        try:
            async with boundary(SandboxError, "reading from the sandbox"):
                while True:
                    await self._take(await reader.header(), reader)
        except SandboxError as error:
            self._lose(error)

    async def _take(self, header: Header, reader: FrameReader) -> None:
        # Kept until its answer is complete: a loss in the middle fails it like the others.
        call = self._calls.get(header.number)
        match header.kind, header.values, call:
            case "result", (code, late, out, out_total, err, err_total), _Call() if (
                max(out, err) <= call.max_output
            ):
                result = Result(
                    exit_code=code,
                    timed_out=bool(late),
                    stdout=await reader.exactly(out),
                    stdout_bytes=out_total,
                    stderr=await reader.exactly(err),
                    stderr_bytes=err_total,
                )
                _resolve(call, result)
            case "pong", (), _Call():
                _resolve(call, _NOTHING)
            case "lost", (), _:
                _fail(call, _result_gone())
            case _:
                raise _unexpected(header)
        self._calls.pop(header.number, None)

    def _lose(self, error: SandboxError) -> None:
        if self._lost is None:
            self._lost = error
        while self._calls:
            _fail(self._calls.popitem()[1], _again(self._lost))

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _start(channel: Channel, reader: FrameReader, *, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s), boundary(SandboxError, "starting the supervisor"):
            await channel.send(supervisor_program())
            await reader.hello()
    except TimeoutError:
        raise SandboxError(
            "the sandbox does not answer",
            why=f"its supervisor did not start within {timeout_s:g} s",
            fix="check that the image has /bin/sh and the machine is not overloaded",
        ) from None


def _file_job(command: Sequence[str], *, stdin: bytes = b"", max_output: int = 4096) -> Job:
    return Job(
        command=command,
        cwd="/",
        env={"LC_ALL": "C"},
        stdin=stdin,
        timeout_s=_FILE_S,
        max_output=max_output,
    )


def _resolve(call: _Call, result: Result) -> None:
    if not call.answer.done():
        call.answer.set_result(result)


def _fail(call: _Call | None, error: SandboxError) -> None:
    if call is not None and not call.answer.done():
        call.answer.set_exception(error)


def _again(error: SandboxError) -> SandboxError:
    # One exception object raised in several tasks would mix their tracebacks. The kind stays: it
    # says how the sandbox was lost.
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    return again


def _wedged(timeout_s: float) -> SandboxError:
    return SandboxError(
        "the sandbox does not answer",
        why=f"no answer within {timeout_s:.0f} s, long after the command's own time",
        fix="the supervisor or the connection hangs; the episode is tried again elsewhere",
    )


def _result_gone() -> SandboxError:
    return SandboxError(
        "a result was lost",
        why="the supervisor's folder was removed while the command ran",
        fix="a command deleted files under /run or /tmp that were not its own",
    )


def _unexpected(header: Header) -> SandboxError:
    return SandboxError(
        "the sandbox broke its protocol",
        why=f"nothing asked for `{header.kind}` of command {header.number}",
        fix="something in the sandbox writes to the supervisor's stream",
    )
