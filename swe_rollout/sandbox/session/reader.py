"""Read responses from a supervisor's stream, and deliver and acknowledge them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from swe_rollout.errors import SandboxError, boundary
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session.connection import SupervisorConnection
from swe_rollout.sandbox.session.frames import (
    CHUNK_BYTES,
    ResponseKind,
    protocol_error,
)
from swe_rollout.sandbox.session.pending import PendingRequest, PendingRequests
from swe_rollout.sandbox.session.seal import Frame

_RESULT = struct.Struct("<IIQQQQ")
_BATCH = 16
_WITHIN_S = 1.0
"""The longest time for which an arrived result stays unacknowledged."""


class Acknowledgements:
    """Collects the numbers of arrived results and acknowledges them in batches.

    A batch is sent at 16 results, at 1 MiB of results, or one second after its first.
    """

    def __init__(self, send: Callable[[list[int]], None]) -> None:
        self._send = send
        self._numbers: list[int] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, number: int, size: int) -> None:
        """Acknowledge a result of `size` bytes."""
        self._numbers.append(number)
        self._bytes += size
        if len(self._numbers) >= _BATCH or self._bytes >= CHUNK_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WITHIN_S, self._flush)

    def stop(self) -> None:
        """Send no further batch."""
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self.stop()
        numbers, self._numbers = self._numbers, []
        self._bytes, self._timer = 0, None
        self._send(numbers)


async def read_results(
    connection: SupervisorConnection, pending: PendingRequests, acknowledgements: Acknowledgements
) -> SandboxError:
    """Deliver responses to their requests until the stream ends; return why it ended."""
    output = _Output()
    try:
        async with boundary(SandboxError, "reading from the sandbox"):
            while True:
                frame = await connection.reader.frame(connection.seal)
                match frame.kind, pending.get(frame.number):
                    case ResponseKind.STATES, None if frame.number == connection.list_number:
                        connection.receive_states(frame.body)
                    case ResponseKind.OUTPUT, request if request is not None:
                        output.add(frame, request)
                    case ResponseKind.RESULT, request if request is not None:
                        request.resolve(output.take(frame))
                        acknowledgements.add(frame.number, output.size)
                        del pending[frame.number]
                    case ResponseKind.PONG, request if request is not None:
                        request.resolve(ExecResult(exit_code=0, stdout=frame.body, stderr=b""))
                        del pending[frame.number]
                    case ResponseKind.OUTPUT | ResponseKind.RESULT as kind, _ if (
                        pending.is_of_another_process(frame.number)
                    ):
                        if kind is ResponseKind.RESULT:
                            acknowledgements.add(frame.number, 0)
                    case kind, _:
                        # A second result too: a request has exactly one, which is never skipped.
                        raise protocol_error(f"kind {kind} of request {frame.number} is unexpected")
    except SandboxError as error:
        return error


class _Output:
    """The output of the result that is arriving; the supervisor sends one result after another."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._number = 0
        self.size = 0
        """Output bytes of the current result, or of the last one."""

    def add(self, frame: Frame, request: PendingRequest) -> None:
        if not self._chunks:
            self._number, self.size = frame.number, 0
        self._chunks.append(frame.body)
        self.size += len(frame.body)
        most = 2 * request.request.max_stream_bytes
        if frame.number != self._number or self.size > most:
            raise protocol_error(f"the output of request {frame.number} is out of place")

    def take(self, frame: Frame) -> ExecResult:
        """Return the result that `frame` completes."""
        if len(frame.body) != _RESULT.size:
            raise protocol_error(f"the values of a result have {len(frame.body)} bytes")
        code, late, out, out_total, err, err_total = _RESULT.unpack(frame.body)
        data = b"".join(self._chunks)
        if (data and frame.number != self._number) or out + err != len(data):
            raise protocol_error(f"the result of request {frame.number} lacks output")
        self._chunks, self.size = [], len(data)
        return ExecResult(
            exit_code=code,
            stdout=data[:out],
            stderr=data[out:],
            timed_out=bool(late),
            stdout_bytes=out_total,
            stderr_bytes=err_total,
        )
