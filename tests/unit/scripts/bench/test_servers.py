"""The scripted servers that benchmarks measure against respond as real ones do."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from rollout_dev.bench.exec_server import READY, ScriptedSupervisor
from swe_rollout.sandbox.session.session import Session

MARKER = 16006
RESPONSES = [
    {"ids": [11, 12, 99], "text": "first", "logprob": -0.5},
    {"ids": [21, 99], "text": "second", "logprob": -0.5},
    {"ids": [31, 99], "text": "done", "logprob": -0.5},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("server") / "script.json"
    script.write_text(json.dumps({"marker": MARKER, "responses": RESPONSES}))
    command = [sys.executable, "-m", "rollout_dev.bench.generate_server", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def generate(client: httpx.Client, ids: list[int]) -> dict[str, object]:
    # The marker's digits outside the ids must count for nothing.
    body = {"rid": f"x{MARKER}x", "input_ids": ids, "sampling_params": {"stop_token_ids": [MARKER]}}
    response: dict[str, object] = client.post("/generate", json=body).raise_for_status().json()
    return response


def test_the_engine_tells_the_turn_by_the_results_in_the_request(server: str) -> None:
    with httpx.Client(base_url=server) as client:
        responses = [generate(client, [1, 2] + [MARKER] * count) for count in (0, 1, 2, 7)]
        assert client.get("/model_info").json()["model_path"] == "scripted"
        assert client.get("/workers").status_code == 404
    assert [each["text"] for each in responses] == ["first", "second", "done", "done"]
    assert responses[0]["output_ids"] == [11, 12, 99]
    meta = responses[1]["meta_info"]
    assert isinstance(meta, dict)
    assert meta["prompt_tokens"] == 3
    assert meta["output_token_logprobs"] == [[-0.5, 21, None], [-0.5, 99, None]]
    assert meta["finish_reason"] == {"type": "stop", "matched": 99}


def test_the_engine_waits_for_the_whole_of_a_request(server: str) -> None:
    url = httpx.URL(server)
    body = json.dumps({"input_ids": [1, MARKER]}).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((url.host, url.port or 80)) as wire:
        for piece in (head[:20], head[20:] + body[:9], body[9:] + head + body):
            wire.sendall(piece)
        data = b""
        while data.count(b'"text"') < 2:
            data += wire.recv(1 << 16)
    assert data.count(b"HTTP/1.1 200 OK") == data.count(b'"second"') == 2


class ScriptedChannel:
    """A channel to a scripted supervisor, which gets its bytes a few at a time."""

    def __init__(self) -> None:
        self._supervisor = ScriptedSupervisor()
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()
        self._sent.put_nowait(READY)

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), 1000):
            response = self._supervisor.respond(data[start : start + 1000])
            if response:
                self._sent.put_nowait(response)

    async def receive(self) -> bytes:
        return await self._sent.get()

    async def close(self) -> None:
        self._sent.put_nowait(b"")


async def test_a_session_runs_commands_on_a_scripted_supervisor() -> None:
    session = await Session.open(ScriptedChannel(), workdir="/")
    await session.ping()
    results = await asyncio.gather(
        session.exec(["true"]),
        session.exec("exit 7", env={"A": "b\nc"}),
        session.exec(["cat"], stdin=b"1 run 0\n" * 1000),
    )
    assert [result.exit_code for result in results] == [0, 0, 0]
    await session.close()
