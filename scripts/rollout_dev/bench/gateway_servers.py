"""The servers that `gateway` measures, each in a process of its own.

    python -m rollout_dev.bench.gateway_servers ours SECONDS
    python -m rollout_dev.bench.gateway_servers chat SECONDS
    python -m rollout_dev.bench.gateway_servers proxy CHAT_SERVER

prints its address and serves. SECONDS is how long a policy takes for each turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import ClientSession, TCPConnector, web

from rollout_dev.bench.common import served
from rollout_dev.counting import bash
from rollout_dev.dev_cluster.checkout import cache_folder
from rollout_dev.report import silence_logs
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import PrerequisiteError
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.harness import OneSession
from swe_rollout.gateway.server import MAX_BODY_BYTES, Api
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation

CHAT: Final = "/v1/chat/completions"
RLLM: Final = "rllm-model-gateway 0.1.0"
_START_S: Final = 60.0


class Quick(TokenEngine):
    """Calls bash in every turn, after `seconds`."""

    def __init__(self, renderer: Renderer, seconds: float) -> None:
        backend = renderer.tokenizer.backend_tokenizer
        self._ids = tuple(backend.encode(bash("ls"), add_special_tokens=False).ids)
        self._seconds = seconds

    async def info(self) -> EngineInfo:
        return EngineInfo("quick", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        await asyncio.sleep(self._seconds)
        ids = self._ids
        return Generation(ids, (-0.5,) * len(ids), FinishReason.STOP, len(request.input_ids))


def parts(seconds: float) -> AgentParts:
    """Return what plays episodes of a policy that takes so long for a turn."""
    renderer = Renderer.load(str(tokenizer_path()))
    limits = Limits(turns=10_000, context_tokens=1 << 20, max_new_tokens=512)
    return AgentParts(Quick(renderer, seconds), renderer, Toolbox([]), Prompts(), limits)


class _Sessions:
    """Opens a session for each new key; those of another round are forgotten."""

    def __init__(self, seconds: float) -> None:
        self._parts = parts(seconds)
        self._open: dict[str, OneSession] = {}

    def by_key(self, key: str) -> OneSession:
        current = key.partition("-")[0]
        if key not in self._open:
            self._open = {k: s for k, s in self._open.items() if k.startswith(f"{current}-")}
            played = Conversations(self._parts, EpisodeId("bench", key, 0), Sampling())
            self._open[key] = OneSession(key, played)
        return self._open[key]


def _ours(seconds: str) -> list[web.RouteDef]:
    return Api(_Sessions(float(seconds))).routes()


def _chat(seconds: str) -> list[web.RouteDef]:
    """Answer as vLLM does where token ids are asked for, without reading what it is asked.

    The ids of the prompt, which vLLM repeats, are left out.
    """
    call = {"name": "bash", "arguments": '{"command": "ls"}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
    }
    ids = list(range(1000, 1024))
    told = [{"token": f"token_id:{each}", "logprob": -0.5, "top_logprobs": []} for each in ids]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "token_ids": ids}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "choices": [choice | {"logprobs": {"content": told}}],
        "usage": {"prompt_tokens": 0, "completion_tokens": len(ids), "total_tokens": len(ids)},
    }
    body, wait_s = msgspec.json.encode(answer), float(seconds)

    async def answered(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(wait_s)
        return web.Response(body=body, content_type="application/json")

    async def healthy(_: web.Request) -> web.Response:
        return web.Response()

    return [web.post(CHAT, answered), web.get("/{any:.*}", healthy)]


def _proxy(target: str) -> list[web.RouteDef]:
    """Forward bodies, both ways, and do nothing else."""
    clients: list[ClientSession] = []

    async def forwarded(request: web.Request) -> web.Response:
        if not clients:
            clients.append(ClientSession(connector=TCPConnector(limit=0)))
        body = await request.read()
        headers = {"Content-Type": request.content_type}
        async with clients[0].post(target + CHAT, data=body, headers=headers) as response:
            found = await response.read()
        return web.Response(body=found, content_type="application/json")

    return [web.post(CHAT, forwarded)]


async def _serve(routes: list[web.RouteDef]) -> None:
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def serving(name: str, argument: object) -> AbstractContextManager[str]:
    """Run one of the servers of this module for its address."""
    return served(__name__, name, str(argument))


def install_rllm() -> Path:
    """Return rLLM's gateway, installed into the user's cache. Raises PrerequisiteError."""
    folder = cache_folder() / "peers" / RLLM.replace(" ", "-")
    program = folder / "bin" / RLLM.partition(" ")[0]
    venv = [sys.executable, "-m", "venv", str(folder)]
    pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "install", RLLM.replace(" ", "==")]
    for command in (venv, pip) if not program.exists() else ():
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        if ran.returncode:
            said = (ran.stderr or ran.stdout).strip().splitlines()
            raise PrerequisiteError(
                "it can't be installed",
                why=said[-1] if said else "",
                fix="run it again with access to a package index",
            )
    return program


@contextmanager
def serving_rllm(program: Path, chat: str) -> Iterator[str]:
    """Run rLLM's gateway as it comes, before a chat server; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--host", "127.0.0.1", "--port", f"{port}", "--db-path", f"{folder}/traces.db"]
        process = subprocess.Popen(
            [program, *where, "--worker", f"{chat}/v1", "--log-level", "warning"],
            env=os.environ | {"PYTHONPATH": ""},
        )
        try:
            _wait_for(url := f"http://127.0.0.1:{port}")
            yield url
        finally:
            process.terminate()
            process.wait()


def _wait_for(url: str) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1).close()  # noqa: S310 - our own
        except urllib.error.URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def main(arguments: Sequence[str]) -> None:
    """Serve one of them."""
    silence_logs()
    name, argument = arguments
    routes = {"ours": _ours, "chat": _chat, "proxy": _proxy}[name](argument)
    asyncio.run(_serve(routes))


if __name__ == "__main__":
    main(sys.argv[1:])
