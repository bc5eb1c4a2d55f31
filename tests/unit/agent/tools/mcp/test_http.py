"""MCP servers beside the worker, over HTTP: a real one, and every way in which one may fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'swe-rollout[mcp]' to run these tests")

from swe_rollout.agent.tools.base import Tool, ToolContext, ToolError
from swe_rollout.agent.tools.mcp.http import HttpServer, ToolServerError
from swe_rollout.agent.tools.mcp.options import McpOptions
from swe_rollout.agent.tools.mcp.tool import read_options, server_tools
from swe_rollout.errors import PrerequisiteError
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.addresses import is_worker
from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.text.redaction import redact
from swe_rollout.types.turn import Observation
from unit.agent.tools.mcp.mcp_parts import http_server
from waits import PATIENCE_S

SANDBOX = MemorySandbox({})
ANY = {"type": "object", "additionalProperties": True}


def tool(url: str, name: str = "count", more: Mapping[str, object] | None = None) -> Tool:
    pin = {"name": name, "description": "Does it.", "inputSchema": ANY}
    (made,) = server_tools(read_options({"url": url, "tools": [pin], **(more or {})}))
    return made


async def call(url: str, name: str, /, timeout_s: float = 30.0, **arguments: object) -> Observation:
    return await tool(url, name).run(arguments, SANDBOX, ToolContext(timeout_s, 4096))


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with http_server() as url:
        yield url


async def test_a_real_server_is_listed_and_called(real: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("two words\n")
    listed = await HttpServer(McpOptions(url=real)).tools(timeout_s=30)
    assert [each.name for each in listed][:2] == ["count", "write"]

    counted = await call(real, "count", path=str(file))
    failed = await call(real, "fail", why="on purpose")
    drawn = await call(real, "draw")
    unknown = await call(real, "no_such_tool")
    wrong = await call(real, "count", paht="x")
    big = await call(real, "large", size=100_000)

    assert '"words": 2' in counted.text
    assert failed.text.startswith("error: ")
    assert "on purpose" in failed.text
    assert drawn.text == "[image: image/png, 40 bytes, not shown]"
    assert unknown.text.startswith("error: ")
    assert wrong.text.startswith("error: ")
    assert big.truncated
    assert len(big.text) <= 4096


async def test_many_calls_at_the_same_time(real: str) -> None:
    seen = await asyncio.gather(*(call(real, "large", size=n) for n in range(1, 9)))

    assert [each.text for each in seen] == ["l" * n for n in range(1, 9)]


async def test_a_slow_answer_costs_the_call_its_time(real: str) -> None:
    seen = await call(real, "slow", timeout_s=1.0, seconds=20)

    assert seen.timed_out
    assert seen.text == "error: the tool server did not answer within 1 s"


async def test_a_call_can_be_cancelled(real: str) -> None:
    task = asyncio.create_task(call(real, "slow", seconds=20))
    await asyncio.sleep(0.5)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=PATIENCE_S)

    assert done
    assert task.cancelled()


async def test_an_answer_that_is_too_large_is_an_observation(real: str) -> None:
    seen = await call(real, "large", size=5 << 20)

    assert seen.text.startswith("error: ")
    assert len(seen.text) < 4096


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve one fixed answer to every request; yield the address, and the requests' heads."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        try:
            await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", heads


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (response("500 Oops"), "status 500"),
        (response("401 Who"), "status 401"),
        (response("403 No"), "status 403"),
        (response("404 Where"), ""),
        (response("200 OK", b"<html>", "Content-Type: text/html"), ""),
        (response("200 OK", b"{]", "Content-Type: application/json"), ""),
        (response("200 OK", b"[" * 100_000, "Content-Type: application/json"), ""),
        (response("307 Go", b"", "Location: http://169.254.169.254/"), ""),
        (response("200 OK", b"x", "Content-Type: application/json", "Content-Encoding: gzip"), ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{", ""),
        (b"", ""),
        (b"\0\0\0\0", ""),
    ],
)
async def test_a_server_that_gives_no_session_is_a_failure_and_not_the_policy_s(
    answer: bytes, why: str
) -> None:
    async with raw_server(answer) as (url, _):
        with pytest.raises(ToolServerError) as failed:
            await call(url, "count")
    assert why in failed.value.why
    assert url in failed.value.what


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ToolServerError):
            await call(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp", "count")
    with pytest.raises(ToolServerError):
        await call("http://no-such-host.invalid/mcp", "count")


async def test_a_body_without_an_end_is_cut_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    async with raw_server(head + b" " * (6 << 20)) as (url, _):
        with pytest.raises(ToolServerError, match="over 4 MiB"):
            await call(url, "count")


async def test_keys_come_from_the_environment_and_are_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "s3cret-token\n")
    monkeypatch.setenv("SEARCH_TEAM", "team-a-key")
    keys: dict[str, object] = {"apiKeyEnv": "SEARCH_TOKEN", "headersEnv": {"X-Team": "SEARCH_TEAM"}}
    async with raw_server(response("401 No")) as (url, heads):
        with pytest.raises(ToolServerError):
            await tool(url, more=keys).run({}, SANDBOX, ToolContext(5.0, 4096))

    assert b"authorization: bearer s3cret-token\r\n" in heads[0].lower()
    assert b"x-team: team-a-key\r\n" in heads[0].lower()
    assert "s3cret-token" not in redact("s3cret-token was sent")
    monkeypatch.delenv("SEARCH_TOKEN")
    with pytest.raises(PrerequisiteError, match="SEARCH_TOKEN is not set"):
        tool("http://a/mcp", more=keys)


async def test_addresses_are_checked_when_a_connection_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that was fine when the job was read may lead anywhere."""

    async def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(2, 1, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(ToolServerError, match="metadata service"):
        await call("http://tools.example/mcp", "count")


async def test_a_worker_s_own_pod_is_refused(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    token = is_worker.set(True)
    try:
        with pytest.raises(ToolServerError, match="the worker's own pod"):
            await call(real, "count")
    finally:
        is_worker.reset(token)


def test_an_address_that_no_server_can_have_is_refused_in_the_job() -> None:
    with pytest.raises(ExtensionError) as refused:
        tool("http://metadata.google.internal/mcp")
    assert "metadata" in refused.value.why


async def test_the_list_of_tools_fails_like_a_call() -> None:
    async with raw_server(response("500 Oops")) as (url, _):
        with pytest.raises((ToolError, ToolServerError)):
            await HttpServer(McpOptions(url=url)).tools(timeout_s=5)
