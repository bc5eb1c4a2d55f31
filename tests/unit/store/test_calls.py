"""Store calls in flight when a process ends: its exit code stays its own."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from obstore.exceptions import BaseError

from swe_rollout.store.address import open_storage
from swe_rollout.store.bucket import Bucket, run_call, wait_until_idle
from swe_rollout.store.objects import StorageObjects
from unit.store.storage_server import CREDENTIALS, Environment, Memory, Serve

pytestmark = pytest.mark.threat(point=17)


async def test_only_threads_of_python_s_own_come_back_to_the_loop(
    monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    """Threads of obstore's runtime are not joined when the interpreter ends."""
    loop = asyncio.get_running_loop()
    own: list[bool] = []

    def record(*arguments: object, _real: Any = loop.call_soon_threadsafe, **named: object) -> Any:
        own.append(not isinstance(threading.current_thread(), threading._DummyThread))
        return _real(*arguments, **named)

    monkeypatch.setattr(loop, "call_soon_threadsafe", record)
    with serve(Memory()):
        bucket = Bucket.open("s3://bucket/folder")
        assert await bucket.create("key", b"data")
        assert await bucket.get("key") == b"data"
    assert own
    assert all(own)


def test_a_connection_keeps_no_object_of_python_s(environment: Environment) -> None:
    """It outlives the call when a server responds before it has read the request."""
    data = bytes(30_000_000)
    before = sys.getrefcount(data)
    connections: list[socket.socket] = []

    def refuse() -> None:
        connection, _ = server.accept()
        connections.append(connection)
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        environment({**CREDENTIALS, "AWS_ENDPOINT_URL": url})
        thread = threading.Thread(target=refuse)
        thread.start()
        with suppress(BaseError):
            StorageObjects(open_storage("s3://bucket")).create("key", data)
        thread.join()
        stack.enter_context(connections[0])
        gc.collect()  # the error's traceback
        assert sys.getrefcount(data) == before


async def test_a_cancelled_caller_does_not_wait_for_the_call() -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait(30)

    caller = asyncio.create_task(run_call(work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not wait_until_idle(0)
    end.set()
    assert wait_until_idle(30)


async def test_the_result_and_the_error_of_a_call_are_the_caller_s() -> None:
    assert await run_call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await run_call(lambda: 1 // 0)
