"""A server that repeats the key it is called with, in every place where a text of its own goes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import zstandard
from aiohttp import web

from e2e.command import ROOT, Job, scripted_server
from pages import contents
from swe_rollout.testing.tiny import tokenizer_path

pytestmark = pytest.mark.threat(point=9)

KEY = "sk-9f/3b7c+2e5d8a1064XyZ"
BASIC = base64.b64encode(f"worker:{KEY}".encode()).decode()
ECHO = f"you sent Bearer {KEY}, or {BASIC}, or {quote(KEY, safe='')}"
FORMS = (KEY, KEY.lower(), BASIC, quote(KEY, safe=""), KEY.encode().hex(), KEY[:16], KEY[-16:])


class Echo:
    """Forwards to a scripted server, and answers each `/generate` in another way that tells."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._calls = 0
        self.seen: set[str] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.add(request.headers.get("Authorization", ""))
        body = await self._forwarded(request)
        match request.path:
            case "/model_info":
                told = body | {"served_model_name": f"m {KEY}", "weight_version": ECHO}
                return web.json_response(told, headers={"X-Echo": KEY})
            case "/generate":
                self._calls += 1
                return self._generated(body)
            case _:
                return web.json_response(body)

    def _generated(self, body: Any) -> web.Response:
        meta = body["meta_info"]
        match self._calls % 9:
            case 1:
                return web.json_response({"error": {"message": ECHO}}, status=500, reason=KEY)
            case 2:
                return web.Response(text="x" * 490 + ECHO, status=400)
            case 3:
                return web.json_response({"detail": ECHO}, status=401)
            case 4:
                return web.Response(text=ECHO)
            case 5:
                meta["finish_reason"] = {"type": "abort", "message": ECHO, "status_code": 503}
            case 6:
                meta["finish_reason"] = {"type": ECHO[:70]}
            case 7:
                meta["finish_reason"] = {"type": "stop", "matched": ECHO}
            case _:
                meta["weight_versions"] = [
                    {**span, "version": ECHO} for span in meta["weight_versions"]
                ]
        return web.json_response(body)

    async def _forwarded(self, request: web.Request) -> Any:
        headers = {
            name: value for name, value in request.headers.items() if name.startswith("X-SMG")
        }
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                request.method,
                self._target + request.path,
                data=await request.read(),
                headers=headers,
            ) as response,
        ):
            is_json = response.status == 200 and response.content_type == "application/json"
            return await response.json() if is_json else {}


@asynccontextmanager
async def echo_server() -> AsyncIterator[tuple[str, Echo]]:
    with scripted_server("--scenarios", "gold") as target:
        echo = Echo(target)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", echo.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", echo
        await runner.cleanup()


async def command(*arguments: str, env: dict[str, str]) -> bytes:
    """Run the command; returns everything it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "swe_rollout.cli.main", "-vv", *arguments),
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return printed


def stored(folder: Path) -> list[bytes]:
    """Read every object of a store, decompressed."""
    return [
        zstandard.ZstdDecompressor().decompress(path.read_bytes())
        if path.suffix == ".zst"
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    ]


async def test_no_byte_of_an_echoed_key_is_printed_or_stored(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    async with echo_server() as (url, echo):
        job = job_file(
            scenarios=["gold"],
            samples=12,
            parallelism=1,
            policy={
                "sglang": {"url": url, "apiKeyEnv": "ENGINE_KEY", "retries": 0},
                "tokenizer": str(tokenizer_path()),
            },
            retry={"attempts": 1, "refills": 0},
            failureBudget={"maxMaskedFraction": 1},
            grading={"enabled": False},
        )
        env = {"ENGINE_KEY": KEY}
        printed = [await command("run", str(job.path), "-o", "json", env=env)]
        printed.append(
            await command("engine", "status", url, "--api-key-env", "ENGINE_KEY", env=env)
        )
        printed.append(await command("status", job.uri, env=env))
        page = tmp_path / "page.html"
        printed.append(await command("view", job.uri, "--output-file", str(page), env=env))

    assert echo.seen == {f"Bearer {KEY}"}
    records = stored(Path(job.store.removeprefix("file://")))
    failures = [record["failure"] for record in map(_trajectory, records) if record]
    assert len(failures) == 12
    assert len({failure["type"] for failure in failures if failure}) >= 4
    texts = [*printed, *records, page.read_bytes(), repr(contents(page.read_text())).encode()]
    for form in FORMS:
        assert not any(form.encode() in text for text in texts), form
    assert any(b"[redacted]" in text for text in records)


def _trajectory(data: bytes) -> dict[str, Any] | None:
    if not data.startswith(b'{"'):
        return None
    found = json.loads(data)
    return found if "token_ids" in found else None
