"""Connections to servers that send too much, or that are no engines."""

from __future__ import annotations

import asyncio
import base64
import gzip
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from swe_rollout.engine.errors import (
    MAX_BODY_BYTES,
    CallLoss,
    EngineLostError,
    OversizedResponseError,
)
from swe_rollout.engine.sglang.connection import EngineConnection
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.spec.addresses import is_worker
from swe_rollout.text.redaction import MARK
from waits import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MIB = b"x" * 2**20

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(reply: Reply, heads: list[bytes] | None = None) -> AsyncIterator[str]:
    """Serve bytes over TCP: `reply` writes whatever it likes after each request's head."""

    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            handlers.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                if heads is not None:
                    heads.append(head)
                await reply(writer)
                await writer.drain()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()
    for handler in handlers:
        handler.cancel()
    await asyncio.gather(*handlers, return_exceptions=True)


def endless(first: bytes, again: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(again)
            await writer.drain()

    return reply


def fixed(data: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return reply


async def get(url: str, *, timeout_s: float = 20.0) -> bytes:
    connection = EngineConnection(url)
    try:
        return (await connection.get("/model_info", timeout_s=timeout_s)).body
    finally:
        await connection.aclose()


BOMB = gzip.compress(b"0" * 2**28)
OVERSIZED: dict[str, Reply] = {
    "a body that never ends": endless(CHUNKED, b"100000\r\n" + MIB + b"\r\n"),
    "a body of a terabyte, as announced": fixed(OK + b"Content-Length: 1099511627776\r\n\r\n"),
    "chunks of one byte": endless(CHUNKED, b"1\r\nx\r\n" * 100_000),
    "a chunk whose extension never ends": endless(CHUNKED + b"1;", MIB),
    "interim responses without end": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
}


@pytest.mark.threat(point=6)
@pytest.mark.parametrize("name", OVERSIZED)
async def test_no_response_takes_more_memory_than_the_answer_can_have(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with server(OVERSIZED[name]) as url:
        with pytest.raises(EngineLostError) as caught:
            await get(url)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert caught.value.loss in (CallLoss.FAILED, CallLoss.DROPPED)
    assert grown_kib < 64 * 1024


@pytest.mark.threat(point=6)
@pytest.mark.parametrize(
    "name", ["a body that never ends", "a body of a terabyte, as announced", "chunks of one byte"]
)
async def test_a_response_that_is_too_long_has_an_error_of_its_own(name: str) -> None:
    async with server(OVERSIZED[name]) as url:
        with pytest.raises(OversizedResponseError, match="too long") as caught:
            await get(url)
    assert str(MAX_BODY_BYTES) in caught.value.why


@pytest.mark.threat(point=6)
async def test_headers_without_end_end_the_call() -> None:
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 4000) for number in range(100))
    async with server(endless(OK, lines)) as url:
        with pytest.raises(EngineLostError):
            await get(url)


@pytest.mark.threat(point=6)
async def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)
    async with server(fixed(head + BOMB)) as url:
        with pytest.raises(EngineLostError, match="compresses its responses"):
            await get(url)


@pytest.mark.threat(point=6)
async def test_a_body_that_drips_is_given_up_in_time() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with server(drip) as url:
        with pytest.raises(EngineLostError) as caught:
            await get(url, timeout_s=1)
    assert caught.value.loss is CallLoss.DROPPED


async def test_a_body_of_the_allowed_length_is_read() -> None:
    body = b"x" * MAX_BODY_BYTES
    async with server(fixed(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)) as url:
        assert await get(url) == body


async def test_a_longer_body_is_read_where_it_was_asked_for() -> None:
    body = b"x" * (3 * MAX_BODY_BYTES)
    async with server(fixed(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)) as url:
        connection = EngineConnection(url)
        response = await connection.post("/generate", max_bytes=len(body), timeout_s=PATIENCE_S)
        await connection.aclose()
    assert response.body == body


@pytest.mark.threat(point=26)
async def test_a_redirect_is_not_followed() -> None:
    there = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    async with server(fixed(there)) as url:
        connection = EngineConnection(url)
        response = await connection.get("/model_info")
        await connection.aclose()
    assert response.status == 302


def resolve_to(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Make every name resolve to this address, as a rebinding DNS server does."""

    async def resolve(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("address", ["169.254.169.254", "100.100.100.200", "168.63.129.16"])
async def test_a_name_that_resolves_to_the_metadata_service_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolve_to(monkeypatch, address)
    with pytest.raises(EngineLostError, match="metadata service") as caught:
        await get("http://sglang.team.example")
    assert caught.value.loss is CallLoss.UNREACHABLE


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    ("address", "port", "what"),
    [
        ("10.96.0.1", 443, "the cluster's API server"),
        ("10.0.0.7", 10250, "a port of the cluster's own components"),
        ("127.0.0.1", 30000, "the worker's own pod"),
    ],
)
async def test_a_worker_in_a_pod_does_not_call_the_cluster_itself(
    monkeypatch: pytest.MonkeyPatch, address: str, port: int, what: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    is_worker.set(True)  # for this test's own task
    with pytest.raises(EngineLostError, match=what):
        await get(f"http://{address}:{port}")


@pytest.mark.threat(point=26)
async def test_what_answered_in_place_of_an_engine_is_not_told() -> None:
    async with server(fixed(b"SSH-2.0-OpenSSH_9.6 bastion\r\n")) as url:
        with pytest.raises(EngineLostError) as caught:
            await get(url)
    assert "SSH" not in str(caught.value)


@pytest.mark.threat(point=9)
@pytest.mark.parametrize(
    "url", ["http://me:hunter2@engine:30000", "http://me:hun/ter2@engine", "http://e?key=hunter2"]
)
def test_an_address_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="engine's address") as caught:
        EngineConnection(url)
    assert "hun" not in f"{caught.value} {caught.value.fix}"


@pytest.mark.threat(point=9)
async def test_a_status_line_that_echoes_the_key_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "sk-7f3b9c2e5d8a1064"
    monkeypatch.setenv("ENGINE_KEY", key)
    async with server(fixed(b"HTTP/1.1 200" + key.encode() + b"\r\n\r\n")) as url:
        connection = EngineConnection(url, api_key_env="ENGINE_KEY")
        with pytest.raises(EngineLostError) as caught:
            await connection.get("/model_info")
        await connection.aclose()
    assert key not in str(caught.value)
    assert caught.value.__cause__ is None
    error = EngineLostError(base64.b64encode(f"Bearer {key}".encode()).decode())
    assert MARK in str(error)


@pytest.mark.threat(point=9)
@pytest.mark.parametrize("key", ["sk-0123456789\r\nX-Evil: 1", "schlüssel-0123456789"])
def test_a_key_that_can_not_be_sent_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("ENGINE_KEY", key)
    with pytest.raises(PrerequisiteError, match="ENGINE_KEY holds no key") as caught:
        EngineConnection("http://sglang:30000", api_key_env="ENGINE_KEY")
    assert "0123456789" not in f"{caught.value} {caught.value.fix}"


def test_a_missing_key_is_found_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    with pytest.raises(PrerequisiteError, match=r"\$ENGINE_KEY is not set"):
        EngineConnection("http://sglang:30000", api_key_env="ENGINE_KEY")


async def test_the_line_break_of_a_key_file_is_no_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-0123456789\n")
    seen: list[bytes] = []

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 0\r\n\r\n")

    async with server(reply, seen) as url:
        connection = EngineConnection(url, api_key_env="ENGINE_KEY")
        await connection.get("/model_info")
        await connection.aclose()
    assert b"Authorization: Bearer sk-0123456789\r\n" in seen[0]
