"""A scripted API server; tests with a real one are in the cluster tier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.client import Configuration

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.config import Access, Credentials

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connect(Protocol):
    """Connect a client to a server that handles every request by one handler."""

    async def __call__(
        self, handler: Handler, *, retry_timeout_s: float = 5.0
    ) -> ClusterClient: ...


def access(server: str) -> Access:
    configuration = Configuration(host=server)
    configuration.api_key["BearerToken"] = "Bearer first"
    return Access(
        server=server,
        namespace="default",
        credentials=Credentials(configuration),
        tls=None,
        tls_server_name=None,
        proxy=None,
    )


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    servers: list[TestServer] = []
    clients: list[ClusterClient] = []

    async def make(handler: Handler, *, retry_timeout_s: float = 5.0) -> ClusterClient:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        client = ClusterClient(
            access(str(server.make_url("")).rstrip("/")), retry_timeout_s=retry_timeout_s
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()
    for server in servers:
        await server.close()
