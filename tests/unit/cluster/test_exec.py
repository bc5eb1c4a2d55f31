"""The exec stream over a WebSocket whose server fails in every possible way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.exec import (
    STDERR_BYTES,
    V4,
    V5,
    ExecEndedError,
    ExecLostError,
    ExecStream,
    ExecTarget,
    open_exec,
)
from swe_rollout.errors import SandboxError
from unit.conftest import Connect
from waits import PATIENCE_S

TARGET = ExecTarget("default", "p", "sandbox")


def server(
    play: Callable[[web.WebSocketResponse], Awaitable[None]], *, protocols: tuple[str, ...] = (V5,)
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=protocols, max_msg_size=0)
        await socket.prepare(request)
        await play(socket)
        return socket

    return handler


def final(**status: Any) -> bytes:
    return b"\x03" + json.dumps(status).encode()


def sends(*frames: bytes) -> Callable[[web.WebSocketResponse], Awaitable[None]]:
    async def play(socket: web.WebSocketResponse) -> None:
        for frame in frames:
            await socket.send_bytes(frame)

    return play


async def opened(connect: Connect, play: Any, **options: Any) -> ExecStream:
    client = await connect(server(play, **options))
    return await open_exec(client, TARGET, ["sh", "-c", "echo 'a b' & x=1+1"])


async def output(stream: ExecStream) -> bytes:
    parts = []
    while data := await stream.receive():
        parts.append(data)
    return b"".join(parts)


async def test_the_request_names_command_container_and_all_three_streams(connect: Connect) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/default/pods/p/exec"
        assert request.query.getall("command") == ["sh", "-c", "echo 'a b' & x=1+1\n#é;"]
        assert request.query["container"] == "sandbox"
        assert {request.query[name] for name in ("stdin", "stdout", "stderr")} == {"true"}
        assert request.query["tty"] == "false"
        socket = web.WebSocketResponse(protocols=(V5,))
        await socket.prepare(request)
        await socket.send_bytes(final(status="Success"))
        return socket

    stream = await open_exec(
        await connect(handler), TARGET, ["sh", "-c", "echo 'a b' & x=1+1\n#é;"]
    )
    assert await output(stream) == b""


async def test_stdout_arrives_as_bytes_whatever_they_are(connect: Connect) -> None:
    parts = (b"\x01\xc3", b"\x01\xa9\x00\xff", b"\x01")
    stream = await opened(connect, sends(*parts, final(status="Success")))
    assert await output(stream) == b"\xc3\xa9\x00\xff"


async def test_stdin_is_cut_in_pieces_that_add_up(connect: Connect) -> None:
    sizes: list[int] = []

    async def play(socket: web.WebSocketResponse) -> None:
        while sum(sizes) < 2_500_000:
            frame = (await socket.receive()).data
            assert frame[0] == 0
            sizes.append(len(frame) - 1)
        await socket.send_bytes(final(status="Success"))

    stream = await opened(connect, play)
    await stream.send(b"x" * 2_500_000)
    await output(stream)
    assert sizes == [1 << 20, 1 << 20, 2_500_000 - (2 << 20)]


async def test_an_exit_code_is_reported_with_the_end_of_stderr(connect: Connect) -> None:
    causes = [{"reason": "ExitCode", "message": "127"}]
    end = final(status="Failure", reason="NonZeroExitCode", details={"causes": causes})
    stream = await opened(connect, sends(b"\x02" + b"x" * 5000 + b"no such shell", end))
    with pytest.raises(ExecEndedError, match="no such shell") as caught:
        await output(stream)
    assert caught.value.program_exit_code == 127
    kept = caught.value.why.partition("stderr: ")[2]
    assert len(kept) == STDERR_BYTES


async def test_an_internal_error_is_a_lost_stream_with_the_servers_message(
    connect: Connect,
) -> None:
    end = final(status="Failure", reason="InternalError", message="container is gone")
    with pytest.raises(ExecLostError, match="container is gone") as caught:
        await output(await opened(connect, sends(end)))
    assert caught.value.retryable


@pytest.mark.parametrize("how", ["dropped", "closed", "nonsense"])
async def test_an_end_without_a_status_is_a_lost_stream_and_no_result(
    connect: Connect, how: str
) -> None:
    async def play(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01partial")
        match how:
            case "dropped":
                transport = socket._req.transport if socket._req is not None else None
                assert transport is not None
                transport.abort()
            case "closed":
                await socket.close(code=1000)
            case _:
                await socket.send_bytes(b"\x03not json")

    stream = await opened(connect, play)
    with pytest.raises(ExecLostError, match="was lost"):
        await output(stream)
    with pytest.raises(ExecLostError):
        await stream.receive()
    with pytest.raises(SandboxError):
        await stream.send(b"more")


async def test_a_closed_stream_says_so_on_v5_and_ends_quietly(connect: Connect) -> None:
    frames: list[bytes] = []
    ended = asyncio.Event()

    async def play(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            frames.append(message.data)
        ended.set()

    stream = await opened(connect, play, protocols=(V5, V4))
    reading = asyncio.create_task(stream.receive())
    await asyncio.sleep(0.05)
    await stream.close()
    await stream.close()
    assert await asyncio.wait_for(reading, PATIENCE_S) == b""
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    assert frames == [bytes([255, 0])]
    with pytest.raises(SandboxError, match="closed"):
        await stream.send(b"x")


async def test_v4_has_no_half_close_and_works_without(connect: Connect) -> None:
    frames: list[bytes] = []
    ended = asyncio.Event()

    async def play(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            frames.append(message.data)
            await socket.send_bytes(b"\x01" + message.data[1:])
        ended.set()

    stream = await opened(connect, play, protocols=(V4,))
    await stream.send(b"echo")
    assert await stream.receive() == b"echo"
    await stream.close()
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    assert frames == [b"\x00echo"]


async def test_a_pending_read_raises_the_reason_of_an_abort(connect: Connect) -> None:
    async def play(socket: web.WebSocketResponse) -> None:
        await socket.receive()

    stream = await opened(connect, play)
    reading = asyncio.create_task(stream.receive())
    await asyncio.sleep(0.05)
    await stream.abort(SandboxError("the pod was evicted"))
    with pytest.raises(SandboxError, match="evicted"):
        await asyncio.wait_for(reading, PATIENCE_S)


async def test_a_write_that_is_not_read_waits_and_an_abort_frees_it(connect: Connect) -> None:
    stop = asyncio.Event()

    async def play(_: web.WebSocketResponse) -> None:
        await stop.wait()

    stream = await opened(connect, play)
    writing = asyncio.create_task(stream.send(b"x" * (64 << 20)))
    await asyncio.sleep(0.3)
    assert not writing.done()
    await asyncio.wait_for(stream.abort(SandboxError("the pod was deleted")), PATIENCE_S)
    with pytest.raises(SandboxError, match="deleted"):
        await asyncio.wait_for(writing, PATIENCE_S)
    stop.set()


async def test_a_refused_handshake_is_an_api_error(connect: Connect) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": 403, "reason": "Forbidden"}, status=403)

    with pytest.raises(ApiError) as caught:
        await open_exec(await connect(handler), TARGET, ["true"])
    assert caught.value.forbidden


async def test_a_refused_handshake_has_the_reason_of_a_plain_request(connect: Connect) -> None:
    """The library drops the body of a handshake's response, with the right that is missing."""
    message = 'User "u" cannot create resource "pods/exec" in API group "" in the namespace "a"'

    async def handler(request: web.Request) -> web.Response:
        body = {"code": 403, "reason": "Forbidden", "message": message}
        is_handshake = request.headers.get("Upgrade", "").lower() == "websocket"
        return web.json_response({} if is_handshake else body, status=403)

    with pytest.raises(ApiError) as caught:
        await open_exec(await connect(handler), TARGET, ["true"])
    assert caught.value.message == message
    assert "--verb=create --resource=pods/exec -n a" in caught.value.fix


async def test_a_refusal_without_a_word_is_explained_by_a_review(connect: Connect) -> None:
    """The API server has no reason to give for the second verb that it asks for."""

    async def handler(request: web.Request) -> web.Response:
        if request.path.endswith("/selfsubjectaccessreviews"):
            verb = (await request.json())["spec"]["resourceAttributes"]["verb"]
            return web.json_response({"status": {"allowed": verb == "get"}})
        if request.path.endswith("/selfsubjectreviews"):
            return web.json_response({"status": {"userInfo": {"username": "ann"}}})
        body = {"code": 403, "reason": "Forbidden", "message": 'pods "p" is forbidden: '}
        return web.json_response(body, status=403)

    with pytest.raises(ApiError) as caught:
        await open_exec(await connect(handler), TARGET, ["true"])
    assert caught.value.lacks_right
    assert 'User "ann" cannot create resource "pods/exec"' in caught.value.message
    assert "--verb=create --resource=pods/exec" in caught.value.fix


async def test_a_server_without_a_known_protocol_is_refused(connect: Connect) -> None:
    async def play(socket: web.WebSocketResponse) -> None:
        await socket.receive()

    with pytest.raises(SandboxError, match="unknown protocol"):
        await opened(connect, play, protocols=())


async def test_a_close_that_is_cancelled_leaves_no_connection(connect: Connect) -> None:
    ended = asyncio.Event()

    async def play(socket: web.WebSocketResponse) -> None:
        await socket.receive()  # stdin's end
        try:
            await socket.receive()
        finally:
            ended.set()

    stream = await opened(connect, play)
    reading = asyncio.create_task(stream.receive())
    await asyncio.sleep(0)
    closing = asyncio.create_task(stream.close())
    await asyncio.sleep(0)
    reading.cancel()
    closing.cancel()
    await asyncio.gather(reading, closing, return_exceptions=True)
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
