"""The scripted server's control endpoints: pause, resume, update weights, report load.

They behave like a real server's: while paused, it holds calls without a response, returns 503 from
`/ready`, and loses aborts. Only `scripted.server` uses this.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from swe_rollout.engine.sglang.control import PauseMode
from swe_rollout.types.turn import Generation

_NOT_READY = 503


class _Pause(msgspec.Struct, frozen=True):
    mode: PauseMode = PauseMode.ABORT


class _Update(msgspec.Struct, frozen=True):
    model_path: str
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True


class _Abort(msgspec.Struct, frozen=True):
    rid: str = ""
    abort_all: bool = False


@dataclass(slots=True)
class ScriptedControl:
    """The calls running in the server, and whether it is paused."""

    running: dict[str, asyncio.Task[Generation]] = field(default_factory=dict)
    """Running calls by their rid."""
    version: str | None = None
    """The weight version; None until the weights have been updated."""
    _resumed: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self._resumed.set()

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    async def wait_while_paused(self) -> None:
        await self._resumed.wait()

    async def call_ended(self, rid: str) -> None:
        """Remove the call, and wake those waiting for the server to be idle."""
        del self.running[rid]
        async with self._idle:
            self._idle.notify_all()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/abort_request", self._abort),
            web.post("/pause_generation", self._pause),
            web.post("/continue_generation", self._continue),
            web.post("/update_weights_from_disk", self._update),
            web.post("/flush_cache", self._flush),
            web.get("/v1/loads", self._loads),
            web.get("/ready", self._ready),
        ]

    async def _abort(self, http: web.Request) -> web.Response:
        """Abort every call whose rid starts with the given one; always 200 and empty."""
        wanted = msgspec.json.decode(await http.read(), type=_Abort)
        for rid, task in self.running.items():
            by_rid = wanted.rid in self.running and rid.startswith(wanted.rid)
            if wanted.abort_all or (by_rid and not self.is_paused):
                task.cancel()
        return web.Response()

    async def _pause(self, http: web.Request) -> web.Response:
        mode = msgspec.json.decode(await http.read(), type=_Pause).mode
        self._resumed.clear()
        if mode is PauseMode.ABORT:
            for task in self.running.values():
                task.cancel()
            await self._wait_until_idle()
        return json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, _: web.Request) -> web.Response:
        self._resumed.set()
        return json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def _update(self, http: web.Request) -> web.Response:
        wanted = msgspec.json.decode(await http.read(), type=_Update)
        if not self.is_paused:
            await self._wait_until_idle()
        if not await asyncio.to_thread(Path(wanted.model_path).is_dir):
            message = f"Failed to get weights iterator: '{wanted.model_path}'."
            return json_response(_update_result(message, success=False), status=400)
        self.version = wanted.weight_version or self.version
        return json_response(_update_result("Succeeded to update model weights.", success=True))

    async def _flush(self, _: web.Request) -> web.Response:
        if self.running:
            return web.Response(status=400, text="Flush cache failed.\n")
        return web.Response(text="Cache flushed.\n")

    async def _loads(self, _: web.Request) -> web.Response:
        load = {"dp_rank": 0, "num_running_reqs": len(self.running), "num_waiting_reqs": 0}
        return json_response({"loads": [load]})

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(status=_NOT_READY if self.is_paused else 200)

    async def _wait_until_idle(self) -> None:
        async with self._idle:
            await self._idle.wait_for(lambda: not self.running)


def _update_result(message: str, *, success: bool) -> object:
    return {"success": success, "message": message, "num_paused_requests": 0}


@web.middleware
async def refuse_undecodable(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Respond like a real server to a request that can't be decoded."""
    try:
        return await handler(request)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"1 validation error:\n  {error}"
        return json_response(server_error("Bad Request", message, 400), status=400)


def server_error(kind: str, message: str, code: int) -> object:
    """Build an error body worded like a real server's."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def json_response(body: object, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )
