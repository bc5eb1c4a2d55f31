"""Snapshots of a session: requests for a sandbox's files as deltas, and their results.

The supervisor walks and restores. Nothing here reads a delta's records, or writes to this machine
under their names. `docs/reference/supervisor.md` documents them.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Mapping
from functools import partial
from typing import Final

import zstandard

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, SandboxDelta
from swe_rollout.sandbox.session.client import SupervisorClient
from swe_rollout.sandbox.session.frames import Request, RequestKind, word

MAX_FILE_BYTES: Final = 16 << 20
"""Size of the largest file in a delta; larger files are reported as unsaved."""
MAX_DELTA_BYTES: Final = 32 << 20
"""Size of a delta before compression; files that exceed it are reported as unsaved."""
WHOLE: Final = "/"
"""The path in `SandboxDelta.unsaved` that stands for the whole file system."""

_MAX_STREAM_BYTES: Final = 2 * MAX_DELTA_BYTES + (1 << 20)
"""Largest stream of records, names included; the supervisor has the same limit."""
_MAGIC: Final = b"swe-delta\x01"
"""The start of a delta's `data`, ending in the version. A zstd frame of the records follows."""
_LEVEL: Final = 3
_WALK: Final = struct.Struct("<QQQI")
_REPORT: Final = struct.Struct("<QQQQQ")
_END: Final = b"E"
_WALK_S: Final = 180.0
"""Time limit of a walk over all files; the supervisor itself ends it after two minutes."""
_TRIES: Final = 3
"""Commands can kill the walking process, so walks are retried."""
_KILLED: Final = 128
_SMALL_BYTES: Final = 64 << 10
_RECORDED: Final = ExecResult(exit_code=0, stdout=b"", stderr=b"")


def walk_request(
    kind: RequestKind, trees: Mapping[str, str] | None, number: int = 0, records: bytes = b""
) -> Request:
    """Build a request about the files of the sandbox.

    `trees` are folders by their names in deltas; None stands for every writable mount. `number`
    identifies the moment to record; `records` are restored.
    """
    pairs = [word(text) for pair in (trees or {}).items() for text in pair]
    head = _WALK.pack(number, MAX_FILE_BYTES, MAX_DELTA_BYTES, len(pairs))
    inputs = ((RequestKind.PUT, records),)
    return Request(kind, head + b"".join(pairs), inputs, _MAX_STREAM_BYTES)


class SessionSnapshots:
    """Deltas of a session's files. Requests that change files wait while they are recorded."""

    def __init__(self, client: SupervisorClient, trees: Mapping[str, str] | None) -> None:
        """Record nothing before `track`."""
        self._client = client
        self._trees = trees
        self._lock = asyncio.Lock()
        self._number = -1
        """Number of the last delta; -1 when no moment has been recorded."""
        self._is_outdated = False
        """Whether the supervisor still has to record the moment after delta `_number`."""
        self._recording: asyncio.Future[ExecResult] | None = None

    def track(self) -> None:
        """Have the current files recorded before the first change, unless that was done before.

        Not at once: a delta may be applied first, and take the place of this.
        """
        if self._number < 0:
            self._number, self._is_outdated = 0, True

    async def record(self) -> None:
        """Record the current files while nobody waits for a command."""
        self.track()
        await self.ready()

    def follow(self, number: int) -> None:
        """Continue after this delta, which the supervisor recorded for another process."""
        recorded = asyncio.get_running_loop().create_future()
        recorded.set_result(_RECORDED)
        self._number, self._is_outdated, self._recording = number, False, recorded

    async def ready(self) -> None:
        """Return once files may change: their previous state is recorded, or can't be."""
        if self._is_outdated:
            self._record()
        if self._recording is not None and not self._recording.done():
            await asyncio.wait({self._recording})

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        async with self._lock:
            await self.ready()
            if since is None:
                since = self._tracked()
            if self._recording is not None and not (recorded := self._recording.result()).ok:
                return delta_of(recorded, since + 1)
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
            make = partial(delta_of, result, since + 1)
            # A small delta is compressed in less time than a thread takes to start.
            is_small = len(result.stdout) <= _SMALL_BYTES
            delta = make() if is_small else await asyncio.to_thread(make)
            self._number = delta.number
            return delta

    async def apply(self, delta: SandboxDelta) -> None:
        async with self._lock:
            if self._recording is not None:
                await asyncio.wait({self._recording})
            records = await asyncio.to_thread(records_of, delta)
            self._number, self._is_outdated = delta.number, True
            check_restored(await self._request(RequestKind.RESTORE, 0, records))

    def _record(self) -> None:
        self._is_outdated = False
        self._recording = asyncio.create_task(self._request(RequestKind.TRACK, self._number))
        # If the sandbox is lost, the next request raises the same error.
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
        request = walk_request(kind, self._trees, number, records)
        return await self._client.request_within(request, timeout_s=_WALK_S)


def delta_of(result: ExecResult, number: int) -> SandboxDelta:
    """Return the delta that a `CHANGES` request resulted in, or a refusal.

    Blocks while it compresses.
    """
    if not result.ok or len(result.stderr) < _REPORT.size:
        return refused(number, _why(result))
    if result.truncated:
        return refused(number, f"its delta is larger than {_MAX_STREAM_BYTES} bytes")
    files, removed, _, lost, named = _REPORT.unpack_from(result.stderr)
    words = result.stderr[_REPORT.size :].split(b"\0")[:-1]
    texts = [_printable(each) for each in words]
    # A file name from the policy never stands for the whole file system.
    unsaved = [f"/.{each}" if each.startswith(f"{WHOLE}: ") else each for each in texts[:named]]
    if lost > named:
        unsaved.append(f"{WHOLE}: {lost - named} more paths are not saved")
    data = _MAGIC + _compressor().compress(result.stdout) if result.stdout else b""
    return SandboxDelta(number, data, files, removed, tuple(unsaved), tuple(texts[named:]))


def refused(number: int, why: str) -> SandboxDelta:
    """Return the stand-in for a delta that could not be made after delta `number - 1`."""
    return SandboxDelta(number - 1, unsaved=(f"{WHOLE}: {why}",))


def records_of(delta: SandboxDelta) -> bytes:
    """Return the records of a delta; SandboxError if it is malformed or too large. Blocks."""
    if not delta.data:
        return _END
    if not delta.data.startswith(_MAGIC):
        raise _damaged("it does not begin as deltas of this version do")
    frame = delta.data[len(_MAGIC) :]
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= _MAX_STREAM_BYTES:
            raise _damaged(f"it says that it has {size} bytes")
        return zstandard.ZstdDecompressor().decompress(
            frame, max_output_size=_MAX_STREAM_BYTES, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise _damaged(f"it is no whole zstd frame ({error})") from error


def check_restored(result: ExecResult) -> None:
    """Raise SandboxError, with the path, when a delta was not restored in full."""
    if not result.ok:
        raise SandboxError(
            "a sandbox can't be brought to its earlier state",
            why=_why(result),
            fix="start it from the same image as before, with the same mounts and as much room; "
            "use a fresh sandbox, for this one is neither as it was nor as it should be",
        )


def _why(result: ExecResult) -> str:
    if result.timed_out:
        return "its files took too long"
    said = _printable(result.stderr[:1000])
    return said or f"the process that walks over them ended with {result.exit_code}"


def _printable(said: bytes) -> str:
    """Decode a text that contains names from the policy; a terminal may show it."""
    text = said.decode("utf-8", "backslashreplace")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _damaged(why: str) -> SandboxError:
    return SandboxError(
        "a sandbox's delta can't be read",
        why=why,
        fix="use the delta as `changes` returned it",
        retryable=False,
    )


def _compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
