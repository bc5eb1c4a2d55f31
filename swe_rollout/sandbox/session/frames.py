"""The supervisor's protocol: requests and responses as frames.

`docs/reference/supervisor.md` documents the frames.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.session.bootstrap import PROTOCOL
from swe_rollout.sandbox.session.channel import Channel, StreamLostError
from swe_rollout.sandbox.session.seal import HEADER_BYTES, Frame, FrameSeal, parse_header

CHUNK_BYTES: Final = 1 << 20
"""The longest body of a response, and of a part of an input."""
_SCRIPT_BYTES: Final = 100_000
"""Linux refuses a single argument above 128 KiB; longer scripts are run from a file."""
_LINE_BYTES: Final = 4096
_RUN: Final = struct.Struct("<IQII")
_STATE: Final = struct.Struct("<QB")
_DONE: Final = struct.Struct("<QI")
_MOST_MS: Final = (1 << 32) - 1


class RequestKind(IntEnum):
    """The kinds of frames that the session sends."""

    HELLO = 1
    PUT = 2
    SCRIPT = 3
    RUN = 4
    READ = 5
    WRITE = 6
    CANCEL = 7
    AGAIN = 8
    ACK = 9
    LIST = 10
    PING = 11
    BYE = 12
    CLEAR = 13
    TRACK = 14
    CHANGES = 15
    RESTORE = 16


class ResponseKind(IntEnum):
    """The kinds of frames that the supervisor sends."""

    READY = 64
    OUTPUT = 65
    RESULT = 66
    PONG = 67
    STATES = 68


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """How much a supervisor has done for its session."""

    effects: int
    """Number of requests begun that could change something: all but pings and walks over files."""
    running: int
    """Number of requests that have no result yet."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has a result."""

    kind: RequestKind
    body: bytes = b""
    inputs: tuple[tuple[RequestKind, bytes], ...] = ()
    """Data that is sent before the request itself, in parts."""
    max_stream_bytes: int = 4096
    """The most bytes that one output stream of the result can have."""

    def frames(self, number: int) -> Iterator[Frame]:
        """Yield the frames to send, in order."""
        for kind, data in self.inputs:
            for start in range(0, len(data), CHUNK_BYTES):
                yield Frame(number, kind, data[start : start + CHUNK_BYTES])
        yield Frame(number, self.kind, self.body)


def run_request(
    command: str | Sequence[str],
    *,
    shell: str,
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    max_output: int,
) -> Request:
    """Build the request for a command; `shell` runs scripts. ValueError if it can't be encoded."""
    script = b""
    if not isinstance(command, str):
        arguments = [word(each) for each in command]
    else:
        script = encoded(command)
        # An argument can't contain NUL. From a file, the shell itself reports the problem.
        if len(script) > _SCRIPT_BYTES or b"\0" in script:
            arguments = [word(shell)]
        else:
            arguments, script = [word(shell), b"-c\0", script + b"\0"], b""
    if not arguments:
        raise ValueError("a command needs at least one argument")
    pairs = [word(f"{_variable(name)}={value}") for name, value in env.items()]
    timeout_ms = min(_MOST_MS, max(1, round(timeout_s * 1000)))
    head = _RUN.pack(timeout_ms, max_output, len(pairs), len(arguments))
    body = b"".join([head, word(cwd), *pairs, *arguments])
    inputs = ((RequestKind.PUT, stdin), (RequestKind.SCRIPT, script))
    return Request(RequestKind.RUN, body, inputs, max_output)


def read_request(path: str, max_bytes: int) -> Request:
    """Build the request for at most `max_bytes` bytes of a file."""
    body = struct.pack("<Q", max_bytes) + word(path)
    return Request(RequestKind.READ, body, max_stream_bytes=max_bytes)


def write_request(path: str, data: bytes, mode: int) -> Request:
    """Build the request to create or replace a file."""
    body = struct.pack("<I", mode & 0o7777) + word(path)
    return Request(RequestKind.WRITE, body, ((RequestKind.PUT, data),), CHUNK_BYTES)


BYE: Final = Frame(0, RequestKind.BYE)
"""Ends the session: the supervisor does not wait for another stream."""


def acknowledge_frame(numbers: Iterable[int]) -> Frame:
    """Encode the acknowledgement of results, which the supervisor then drops."""
    return Frame(0, RequestKind.ACK, b"".join(struct.pack("<Q", number) for number in numbers))


def word(text: str) -> bytes:
    """Encode a word of a request; it is terminated by NUL."""
    if "\0" in text:
        raise ValueError("arguments, paths and environment can't contain NUL")
    return encoded(text) + b"\0"


def encoded(text: str) -> bytes:
    """Encode as UTF-8; surrogates for undecodable bytes become these bytes, others become `?`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def parse_states(body: bytes) -> dict[int, bool]:
    """Parse the list of requests that the supervisor knows, and whether each has ended."""
    if len(body) % _STATE.size:
        raise protocol_error(f"a list of requests has {len(body)} bytes")
    return {number: bool(ended) for number, ended in _STATE.iter_unpack(body)}


def parse_pong(body: bytes) -> SupervisorState | None:
    """Parse a pong; None for the empty pong of an earlier version."""
    if not body:
        return None
    if len(body) != _DONE.size:
        raise protocol_error(f"a pong has {len(body)} bytes")
    return SupervisorState(*_DONE.unpack(body))


class FrameReader:
    """Reads the first lines of a channel, and then its frames."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray()

    async def start(self) -> str | None:
        """Return the machine that needs a program; None once a supervisor is ready."""
        line = await self._line()
        match = re.fullmatch(rf"swe-rollout {PROTOCOL} (?:wants (\S+)|ready)".encode(), line)
        if match is None:
            raise _not_started(line)
        return None if match[1] is None else match[1].decode("utf-8", "replace")

    async def frame(self, seal: FrameSeal) -> Frame:
        """Return the next frame; raises StreamLostError if something else wrote to the stream."""
        header = parse_header(await self._exactly(HEADER_BYTES))
        if header.length > CHUNK_BYTES:
            raise forged_error(f"it begins with a frame of {header.length} bytes")
        body = await self._exactly(header.length)
        if not seal.is_genuine(header, body):
            raise forged_error("a frame on it has not been sealed by the supervisor")
        return Frame(header.number, header.kind, body)

    async def greeting(self, seal: FrameSeal) -> str:
        """Return the program that runs scripts, once the supervisor has accepted the stream.

        It is bash if the image has it.
        """
        frame = await self.frame(seal)
        if frame.kind != ResponseKind.READY:
            raise protocol_error(f"a stream begins with a frame of kind {frame.kind}")
        return frame.body.decode("utf-8", "surrogateescape")

    async def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LINE_BYTES:
                raise _not_started(bytes(self._buffer))
            await self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._fill()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _fill(self) -> None:
        data = await self._channel.receive()
        if not data:
            raise SandboxError(
                "the sandbox is lost",
                why="its supervisor ended",
                fix="look at the sandbox's own end (out of memory, evicted, killed by a command)",
            )
        self._buffer += data


def protocol_error(why: str) -> SandboxError:
    """Build the error for a supervisor that violates the protocol."""
    return SandboxError(
        "the sandbox broke its protocol", why=why, fix="report this: the supervisor is at fault"
    )


def forged_error(why: str) -> StreamLostError:
    """Build the error for a stream to which something other than the supervisor has written."""
    return StreamLostError(
        "the stream to the sandbox was tampered with",
        why=why,
        fix="look for a command that writes to pipes that are not its own",
    )


def _not_started(line: bytes) -> SandboxError:
    return SandboxError(
        "the sandbox's supervisor did not start",
        why=f"it printed {line[:200]!r}",
        fix="check that the image has a working /bin/sh, and a folder (/run, /var/tmp, /tmp or "
        "/dev/shm) in which programs can be written and run",
    )


def _variable(name: str) -> str:
    if not name or "=" in name:
        raise ValueError(f"not the name of an environment variable: {name!r}")
    return name
