"""Serve metrics over HTTP, and measure event-loop lag. Scrapes never block the loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from swe_rollout.errors import PrerequisiteError, UsageError, cancel_all
from swe_rollout.telemetry.metrics import RolloutMetrics

CLIENT_S: Final = 5.0
"""How long a client may take to send its request or read the response."""
MAX_CLIENTS: Final = 8
"""Clients served concurrently; further connections are closed."""
LAST_PORT: Final = 65535
SAMPLE_S: Final = 0.5
"""Seconds between two measurements of event-loop lag."""


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """The address on which metrics are served."""

    host: str
    """Empty for all addresses of this machine."""
    port: int
    """0 for any free port."""

    @classmethod
    def parse(cls, text: str) -> MetricsAddress:
        """Parse `PORT` (of 127.0.0.1), `HOST:PORT`, `[::1]:PORT` or `:PORT` (all addresses).

        Raises UsageError.
        """
        host, colon, port = text.rpartition(":")
        if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
            raise UsageError(
                f"{text!r} is no address for metrics",
                why="it has no port between 0 and 65535",
                fix="write HOST:PORT, such as 127.0.0.1:9464",
            )
        return cls(host.strip("[]") if colon else "127.0.0.1", int(port))


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's
        """Log nothing: scrapes are frequent."""

    def log_error(self, format: str, *args: object) -> None:  # noqa: A002 - the base's
        """Log nothing: any client can cause it."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(MAX_CLIENTS)
        # "" means every address, of both families if the machine has them.
        is_any = not address[0] and socket.has_dualstack_ipv6()
        if is_any or ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._is_dual = is_any
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self._is_dual:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: object, client_address: object) -> None:
        """Accept a client if there is room; excess clients get neither threads nor memory."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: a client that disconnects is not an event."""


@asynccontextmanager
async def serving(metrics: RolloutMetrics, address: MetricsAddress) -> AsyncIterator[int]:
    """Serve `/metrics` while the block runs; yield the port. Raises PrerequisiteError."""
    app = make_wsgi_app(metrics.registry)
    try:
        server = make_server(address.host, address.port, app, _Server, handler_class=_Handler)
    except OSError as error:
        raise PrerequisiteError(
            f"metrics can't be served at {address.host or '*'}:{address.port}",
            why=str(error),
            fix="name another address, or leave metrics out",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    watching = asyncio.create_task(watch_loop(metrics), name="loop-lag")
    try:
        yield server.server_port
    finally:
        await cancel_all(watching)
        await asyncio.to_thread(server.shutdown)
        server.server_close()


async def watch_loop(metrics: RolloutMetrics) -> None:
    """Measure event-loop lag until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + SAMPLE_S
        await asyncio.sleep(SAMPLE_S)
        metrics.loop_lagged(max(0.0, loop.time() - due))
