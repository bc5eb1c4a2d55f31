"""A stand-in for an API server with very many pods: exec streams (v5) to scripted supervisors.

It speaks the supervisor's protocol and runs nothing: every command ends at once with 0, so that the
other side measures the client alone. `sessions` starts it as a process of its own.

    python -m rollout_dev.bench.exec_server CERTIFICATE KEY

prints its port and serves until stdin ends.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Final

from aiohttp import WSMsgType, web

from swe_rollout.sandbox.session.frames import RequestKind, ResponseKind
from swe_rollout.sandbox.session.seal import (
    HEADER_BYTES,
    Frame,
    FrameSeal,
    SealedHeader,
    Side,
    parse_header,
)

_STDIN, _STDOUT = 0, b"\x01"
_PROTOCOL: Final = "v5.channel.k8s.io"
READY: Final = b"swe-rollout 3 ready\n"


class ScriptedSupervisor:
    """A supervisor: bytes in, bytes out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._seal: FrameSeal | None = None

    def respond(self, data: bytes) -> bytes:
        """Return the supervisor's response to these bytes."""
        self._buffer += data
        responses = []
        while len(self._buffer) >= HEADER_BYTES:
            header = parse_header(bytes(self._buffer[:HEADER_BYTES]))
            end = HEADER_BYTES + header.length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[HEADER_BYTES:end])
            del self._buffer[:end]
            responses.append(self._respond_to(header, body))
        return b"".join(responses)

    def _respond_to(self, header: SealedHeader, body: bytes) -> bytes:
        if self._seal is None:
            self._seal = FrameSeal(body, header.number, side=Side.SUPERVISOR)
        if not self._seal.is_genuine(header, body):
            raise ValueError("a frame of the session is not sealed")
        match header.kind:
            case RequestKind.HELLO:
                return self._seal.seal(Frame(0, ResponseKind.READY, b"/bin/sh"))
            case RequestKind.RUN:
                return self._seal.seal(Frame(header.number, ResponseKind.RESULT, bytes(40)))
            case RequestKind.PING:
                return self._seal.seal(Frame(header.number, ResponseKind.PONG))
            case _:
                return b""


async def _exec(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=(_PROTOCOL,), max_msg_size=0, compress=False)
    await socket.prepare(request)
    supervisor = ScriptedSupervisor()
    await socket.send_bytes(_STDOUT + READY)
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[0] == _STDIN:
            response = supervisor.respond(message.data[1:])
            if response:
                await socket.send_bytes(_STDOUT + response)
    return socket


async def _serve(certificate: str, key: str) -> None:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", _exec)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls, backlog=1024)
    await site.start()
    (address, *_) = runner.addresses
    print(address[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
