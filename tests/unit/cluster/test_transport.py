"""Requests: which are retried, and the errors of those that fail."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes.client import Configuration

from swe_rollout.cluster import transport
from swe_rollout.cluster.api_error import ApiError, BusyServerError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.errors import ClusterError, UnreachableError
from swe_rollout.types.episode import Failure
from unit.conftest import Connect, access

VERSION = {"gitVersion": "v1.36.3"}
Refusal = tuple[int, str, str]
QUOTA_RACE: Refusal = (
    409,
    "Conflict",
    'Operation cannot be fulfilled on resourcequotas "q": the object has been modified',
)
NO_ACCOUNT: Refusal = (
    403,
    "Forbidden",
    'pods "p" is forbidden: error looking up service account new/default: not found',
)
CUT = "cut the connection"
NO_HTTP = "write no HTTP"
PAGE = "<html>sign in</html>"
DENIED: Refusal = (403, "Forbidden", 'User "u" cannot get resource "pods"')
UNKNOWN: Refusal = (404, "NotFound", "the server could not find the requested resource")
UNAUTHORIZED: Refusal = (401, "Unauthorized", "Unauthorized")
QUOTA: Refusal = (403, "Forbidden", "exceeded quota: q")


def status(code: int, reason: str, message: str = "") -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    return web.json_response({**body, "code": code}, status=code)


class Replies:
    """A server with one reply after the other; the last one comes again."""

    def __init__(self, *replies: str | Refusal) -> None:
        self._replies = replies
        self.requests: list[web.Request] = []
        self.times: list[float] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        match self._replies[min(len(self.requests), len(self._replies)) - 1]:
            case "a version":
                return web.json_response(VERSION)
            case "a websocket":
                socket = web.WebSocketResponse(protocols=("v5",))
                await socket.prepare(request)
                return socket
            case "in a second":
                return web.Response(status=429, headers={"Retry-After": "1"})
            case str(text):
                if text in (CUT, NO_HTTP) and request.transport is not None:
                    request.transport.write(b"?\r\n\r\n" if text == NO_HTTP else b"")
                    request.transport.close()
                return web.Response(text=text)
            case refusal:
                return status(*refusal)


async def test_a_request_carries_the_token(connect: Connect) -> None:
    server = Replies("a version")
    assert await (await connect(server.respond)).version() == "v1.36.3"
    assert [each.headers["Authorization"] for each in server.requests] == ["Bearer first"]


@pytest.mark.parametrize(
    "before",
    [
        *(((code, "InternalError", ""),) for code in (500, 503, 504)),
        ("in a second",),
        (QUOTA_RACE,),
        (NO_ACCOUNT,),
        (CUT,),
        (NO_HTTP,),
        (PAGE,),
        # A server that has just restarted listens before it knows its roles and CRDs.
        (CUT, DENIED, DENIED),
        (CUT, UNKNOWN, UNKNOWN),
        (CUT, UNAUTHORIZED, UNAUTHORIZED),
    ],
)
async def test_what_may_succeed_a_little_later_is_asked_again(
    connect: Connect, before: tuple[str | Refusal, ...]
) -> None:
    server = Replies(*before, "a version")
    assert await (await connect(server.respond)).version() == "v1.36.3"
    assert len(server.requests) == len(before) + 1
    if before == ("in a second",):
        assert server.times[1] - server.times[0] >= 1.0


async def test_a_server_that_is_too_busy_gets_no_other_requests_meanwhile(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "REQUESTS_AT_ONCE", 2)
    asked = list[str]()

    async def respond(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if asked.count(request.path) == 1:
            return web.Response(status=429)
        return web.json_response({"metadata": {"name": "p"}})

    client = await connect(respond)
    await asyncio.gather(*(client.get(PODS, "default", str(number)) for number in range(4)))

    first_done = next(at for at, path in enumerate(asked) if path in asked[:at])
    assert len(set(asked[:first_done])) == 2
    assert len(asked) == 8


async def test_a_request_that_fails_otherwise_holds_up_no_other(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "REQUESTS_AT_ONCE", 1)
    other_done = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/other"):
            other_done.set()
        elif not other_done.is_set():
            return status(500, "InternalError", "a webhook failed")
        return web.json_response({"metadata": {"name": "p"}})

    client = await connect(respond)
    names = ("fails", "other")
    await asyncio.gather(*(client.get(PODS, "default", name) for name in names))


async def test_a_server_that_stays_too_busy_costs_no_attempt(connect: Connect) -> None:
    client = await connect(Replies((429, "TooManyRequests", "")).respond, retry_timeout_s=0.2)
    with pytest.raises(BusyServerError) as caught:
        await client.get(PODS, "default", "p")
    assert Failure.of(caught.value).scarce


async def test_a_refusal_is_raised_at_once_with_reason_and_fix(connect: Connect) -> None:
    server = Replies(DENIED)
    client = await connect(server.respond)
    with pytest.raises(ApiError, match="cannot get resource") as caught:
        await client.get(PODS, "default", "p")
    assert caught.value.forbidden
    assert caught.value.reason == "Forbidden"
    assert "Role" in caught.value.fix
    assert not caught.value.retryable
    assert len(server.requests) == 1


async def test_a_watch_that_a_restarted_server_refuses_is_opened_again(connect: Connect) -> None:
    client = await connect(Replies(CUT, DENIED, DENIED, "an event\n").respond)
    async with client.transport.lines("/watch", doing="watch") as stream:
        assert await stream.readline() == b"an event\n"


async def test_a_websocket_that_a_restarted_server_refuses_is_opened_again(
    connect: Connect,
) -> None:
    """Its refusal has no reason: the client library drops the body."""
    server = Replies(CUT, DENIED, DENIED, "a websocket")
    client = await connect(server.respond)
    opened = await client.transport.websocket("/exec", doing="exec", protocols=("v5",))
    assert opened.protocol == "v5"
    assert len(server.requests) == 4
    await opened.close()


@pytest.mark.parametrize("before", [(CUT,), ()])
async def test_a_websocket_that_is_refused_for_long_is_no_proof_after_a_restart_only(
    connect: Connect, before: tuple[str, ...]
) -> None:
    client = await connect(Replies(*before, DENIED).respond, retry_timeout_s=0.5)
    with pytest.raises(ClusterError) as caught:
        await client.transport.websocket("/exec", doing="exec", protocols=("v5",))
    assert isinstance(caught.value, ApiError) is (not before)


@pytest.mark.parametrize("refusal", [DENIED, QUOTA])
async def test_other_refusals_are_raised_at_once_also_after_a_lost_connection(
    connect: Connect, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusal is DENIED:
        monkeypatch.setattr(transport, "SETTLING_S", 0.0)  # long ago
    server = Replies(CUT, refusal)
    client = await connect(server.respond)
    with pytest.raises(ApiError):
        await client.version()
    assert len(server.requests) == 2


async def test_a_taken_name_and_another_uid_are_distinguished(connect: Connect) -> None:
    client = await connect(Replies((409, "AlreadyExists", ""), (409, "Conflict", "")).respond)
    with pytest.raises(ApiError) as caught:
        await client.get(PODS, "default", "p")
    assert caught.value.already_exists
    assert not caught.value.conflict
    assert not await client.delete(PODS, "default", "p", uid="u")


async def test_retries_end_with_the_servers_own_error(connect: Connect) -> None:
    server = Replies((503, "ServiceUnavailable", "etcd is down"))
    client = await connect(server.respond, retry_timeout_s=0.2)
    with pytest.raises(ApiError, match="etcd is down") as caught:
        await client.version()
    assert caught.value.retryable


async def test_a_page_of_a_proxy_is_an_error_that_shows_it(connect: Connect) -> None:
    async def handler(request: web.Request) -> web.Response:
        code = 418 if request.path == "/version" else 200
        return web.Response(status=code, text=PAGE)

    client = await connect(handler, retry_timeout_s=0.1)
    with pytest.raises(ApiError, match="sign in"):
        await client.version()
    with pytest.raises(UnreachableError, match="sign in"):
        await client.get(PODS, "default", "p")


async def test_an_object_of_another_form_is_an_error(connect: Connect) -> None:
    client = await connect(Replies("a version", (200, "", "")).respond)
    assert await client.version()
    with pytest.raises(ClusterError, match="can't be decoded"):
        await client.version()


async def test_a_token_that_can_not_be_read_now_is_read_again(connect: Connect) -> None:
    """As by a process that has too many files open."""
    client = await connect(Replies("a version").respond)
    configuration: Any = client.transport.access.credentials._configuration
    settings = configuration.auth_settings
    times = iter([OSError(errno.EMFILE, "Too many open files")])

    def auth_settings() -> Any:
        for error in times:
            raise error
        return settings()

    configuration.auth_settings = auth_settings
    assert await client.version() == "v1.36.3"


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    client = ClusterClient(access(server), retry_timeout_s=0.2)
    with pytest.raises(UnreachableError, match=server) as caught:
        await client.version()
    assert caught.value.fix
    await client.aclose()


@dataclass(frozen=True)
class Certificates:
    """Two of one server, and what trusts both."""

    tomorrow: Path
    today: Path
    trusted: ssl.SSLContext


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    now = datetime.now(UTC)
    trusted = ssl.create_default_context()
    tomorrow, today = tmp_path / "tomorrow.pem", tmp_path / "today.pem"
    for path, begins in ((tomorrow, now + timedelta(days=1)), (today, now - timedelta(days=1))):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, path.stem)])
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + timedelta(days=9))
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = made.public_bytes(serialization.Encoding.PEM)
        trusted.load_verify_locations(cadata=pem.decode())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(private + pem)
    return Certificates(tomorrow, today, trusted)


@asynccontextmanager
async def a_day_behind(
    certificates: Certificates, *, retry_timeout_s: float
) -> AsyncIterator[tuple[ClusterClient, ssl.SSLContext]]:
    """Yield a client of a server whose certificate is valid tomorrow, and the server's side."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Replies("a version").respond)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates.tomorrow)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=tls)
    reached = replace(access(f"https://127.0.0.1:{server.port}"), tls=certificates.trusted)
    client = ClusterClient(reached, retry_timeout_s=retry_timeout_s)
    try:
        yield client, tls
    finally:
        await client.aclose()
        await server.close()


async def test_a_certificate_of_tomorrow_is_a_clock_that_is_wrong(
    certificates: Certificates,
) -> None:
    """Issue 16, 6."""
    async with a_day_behind(certificates, retry_timeout_s=0.1) as (client, _):
        with pytest.raises(UnreachableError, match="not yet valid") as caught:
            await client.version()
    assert "`date -u`" in caught.value.fix


async def test_a_clock_that_is_set_meanwhile_costs_nothing(certificates: Certificates) -> None:
    async with a_day_behind(certificates, retry_timeout_s=30.0) as (client, tls):
        # As if tomorrow had come.
        asyncio.get_running_loop().call_later(0.1, tls.load_cert_chain, certificates.today)
        assert await client.version() == "v1.36.3"


async def test_a_server_that_does_not_respond_is_unreachable(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RESPONSE_S", 0.1)

    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.json_response(VERSION)

    client = await connect(handler, retry_timeout_s=0.1)
    with pytest.raises(UnreachableError):
        await client.version()


@pytest.mark.parametrize("lost", [False, True])
async def test_a_renewed_token_is_used_after_the_old_one_was_refused(
    connect: Connect, *, lost: bool
) -> None:
    before: list[str | Refusal] = [CUT, (503, "", "")] if lost else []
    renewed = Replies(*before, "a version")

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer second":
            return await renewed.respond(request)
        return status(401, "Unauthorized")

    client = await connect(handler)
    credentials = client.transport.access.credentials

    def renew(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = "Bearer second"

    assert await credentials.headers() == {"Authorization": "Bearer first"}
    vars(credentials._configuration)["refresh_api_key_hook"] = renew
    assert await client.version() == "v1.36.3"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", 0), ("7", 7), ("86400", 60), ("9" * 5000, 0), ("-1", 0), ("²", 0), ("soon", 0)],
)
def test_a_server_decides_on_a_pause_but_not_on_any(header: str, seconds: float) -> None:
    assert transport._seconds(header) == seconds


async def test_a_list_is_read_page_by_page(connect: Connect) -> None:
    names = [f"pod-{n}" for n in range(5)]
    asked: list[tuple[str, str]] = []

    async def respond(request: web.Request) -> web.Response:
        asked.append((request.query.get("limit", ""), request.query.get("continue", "")))
        start = int(request.query.get("continue", 0))
        metadata = {"resourceVersion": "7"}
        if start + 2 < len(names):
            metadata["continue"] = str(start + 2)
        items = [{"metadata": {"name": name}} for name in names[start : start + 2]]
        return web.json_response({"metadata": metadata, "items": items})

    client = await connect(respond)
    found = await client.list(PODS, "default", labels="a=b")
    assert [pod.metadata.name for pod in found.items] == names
    assert found.version == "7"
    assert asked == [("500", ""), ("500", "2"), ("500", "4")]
    assert await client.has(PODS, "default")
    assert asked[3:] == [("1", "")]


def forgetful(
    asked: list[str], newer: str = "newer"
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Serve pods whose first version is forgotten after one page; `newer` is the next page."""

    async def respond(request: web.Request) -> web.Response:
        asked.append(request.query.get("continue", "first" if "limit" in request.query else "all"))
        match asked[-1]:
            case "consistent":
                status = {"code": 410, "reason": "Expired", "metadata": {"continue": newer}}
                return web.json_response(status, status=410)
            case "first":
                names, metadata = "a", {"resourceVersion": "7", "continue": "consistent"}
            case "newer":
                names, metadata = "bc", {"resourceVersion": "8"}
            case _:
                names, metadata = "abcd", {"resourceVersion": "9"}
        items = [{"metadata": {"name": name}} for name in names]
        return web.json_response({"metadata": metadata, "items": items})

    return respond


async def test_pages_of_a_version_that_was_forgotten_continue_in_a_newer_one(
    connect: Connect,
) -> None:
    asked: list[str] = []
    reading = (await connect(forgetful(asked))).pages(PODS, "default")
    pages = [[pod.metadata.name for pod in page.items] async for page in reading]
    assert (pages, asked) == ([["a"], ["b", "c"]], ["first", "consistent", "newer"])


@pytest.mark.parametrize("newer", ["newer", ""])
async def test_a_list_is_of_one_version(connect: Connect, newer: str) -> None:
    found = await (await connect(forgetful([], newer))).list(PODS, "default")
    assert ([pod.metadata.name for pod in found.items], found.version) == ([*"abcd"], "9")


async def test_a_server_that_has_no_version_at_all_refuses_the_list(
    connect: Connect,
) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response({"code": 410, "reason": "Expired"}, status=410)

    with pytest.raises(ApiError, match="410 Expired"):
        await (await connect(respond)).list(PODS, "default")
