"""Serve a token engine over SGLang's `/generate`, like a real server.

It serves the scripted engine, so the client code is exercised without a GPU. It implements the part
of the protocol that the client uses, and rejects what it does not support, such as grammars and
several generations per request.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from aiohttp import web
from pydantic import ValidationError

from swe_rollout.engine.base import GenerateRequest, TokenEngine
from swe_rollout.engine.scripted.control import (
    ScriptedControl,
    json_response,
    refuse_undecodable,
    server_error,
)
from swe_rollout.engine.sglang import protocol
from swe_rollout.errors import EpisodeError
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.tokens.replay import ExpertShape
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

if TYPE_CHECKING:
    from numpy.typing import NDArray


_BODY_BYTES = 256 * 2**20
EXPERTS = 128


class _SamplingParams(protocol.SamplingParams, frozen=True, forbid_unknown_fields=True):
    """Rejects fields that are misspelt or that the scripted engine does not support."""


class _Body(msgspec.Struct, frozen=True):
    input_ids: list[int]
    rid: str = ""
    sampling_params: _SamplingParams = _SamplingParams()
    return_logprob: bool = False
    stream: bool = False


class _RejectedError(Exception):
    """A rejected request, with the error body that a real server would send."""

    def __init__(self, body: object, *, status: int = 400) -> None:
        super().__init__(body)
        self.body = body
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The server's behaviour, apart from its engine."""

    experts: ExpertShape | None = None
    """The experts that `--enable-return-routed-experts` returns; None turns this off."""
    max_running: int | None = None
    """The most calls at a time; further ones are rejected, as by a full queue."""
    cache_tokens: int | None = None
    """The size of the KV cache that it reports."""


@dataclass(frozen=True, slots=True)
class _ServedCall:
    """One decoded request."""

    rid: str
    request: GenerateRequest
    replay: RequestedReplay


@dataclass(slots=True)
class _Server:
    engine: TokenEngine
    setup: ServerOptions
    control: ScriptedControl = field(default_factory=ScriptedControl)

    async def generate(self, http: web.Request) -> web.Response:
        started = time.monotonic()
        try:
            call = _read(await http.read(), http.headers.get(protocol.ROUTING_HEADER))
            generation = await self._run(call)
        except _RejectedError as rejected:
            return json_response(rejected.body, status=rejected.status)
        except EpisodeError as error:
            return json_response(_message(str(error)), status=500 if error.retryable else 400)
        version = (await self.engine.info()).weight_version or "default"
        if self.control.version is not None:
            version = self.control.version
            spans = (WeightSpan(version, 0, len(generation.token_ids)),) if generation else ()
            generation = generation and replace(generation, weight_versions=spans)
        seconds = time.monotonic() - started
        return json_response(_response_body(call, generation, version, seconds, self.setup.experts))

    async def _run(self, call: _ServedCall) -> Generation | None:
        """Run the call; return None if it was aborted."""
        running = self.control.running
        await self._admit(call.rid)
        task = asyncio.create_task(self.engine.generate(call.request))
        running[call.rid] = task
        try:
            await asyncio.wait((task,))
            if task.cancelled():
                return None
            # A call that a pause froze returns after the server is resumed.
            await self.control.wait_while_paused()
            return task.result()
        finally:
            task.cancel()
            await self.control.call_ended(call.rid)

    async def _admit(self, rid: str) -> None:
        running, most = self.control.running, self.setup.max_running
        if most is not None and len(running) >= most:
            full = server_error("503", "The request queue is full.", 503)
            raise _RejectedError(full, status=503)
        await self.control.wait_while_paused()
        if rid in running:
            raise _RejectedError(_message(f"Duplicate request ID detected: {rid}"))

    async def model_info(self, _: web.Request) -> web.Response:
        info = await self.engine.info()
        return json_response(
            {
                "model_path": info.model,
                "served_model_name": info.model,
                "tokenizer_path": info.tokenizer,
                "is_generation": True,
                "weight_version": self.control.version or info.weight_version or "default",
            }
        )

    async def server_info(self, _: web.Request) -> web.Response:
        info = await self.engine.info()
        sizes = (info.context_tokens, self.setup.cache_tokens)
        names = ("context_length", "max_total_num_tokens")
        return json_response({"model_path": info.model, **dict(zip(names, sizes, strict=True))})

    async def models(self, _: web.Request) -> web.Response:
        info = await self.engine.info()
        card = {"id": info.model, "object": "model", "max_model_len": info.context_tokens}
        return json_response({"object": "list", "data": [card]})


def make_app(engine: TokenEngine, setup: ServerOptions | None = None) -> web.Application:
    """Build the server as an aiohttp application; the caller closes the engine."""
    server = _Server(engine, setup or ServerOptions())
    app = web.Application(client_max_size=_BODY_BYTES, middlewares=[refuse_undecodable])
    app.add_routes(
        [
            web.post("/generate", server.generate),
            web.get("/model_info", server.model_info),
            web.get("/get_model_info", server.model_info),
            web.get("/server_info", server.server_info),
            web.get("/v1/models", server.models),
            web.get("/health", _alive),
            *server.control.routes(),
        ]
    )
    return app


async def serve(
    engine: TokenEngine,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    setup: ServerOptions | None = None,
) -> None:
    """Serve until cancelled; `on_ready` gets the address."""
    await serve_app(make_app(engine, setup), host=host, port=port, on_ready=on_ready)


SILENT: Final = logging.getLogger(f"{__name__}.http")
"""Replaces aiohttp's own log, which repeats whatever a client sends that is no HTTP."""
SILENT.disabled = True


async def serve_app(
    app: web.Application, *, host: str, port: int, on_ready: Callable[[str], None]
) -> None:
    """Serve until cancelled; `on_ready` gets the address, with the actual port if `port` is 0."""
    runner = web.AppRunner(app, access_log=None, logger=SILENT)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0][1]
        on_ready(f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _read(data: bytes, routing_key: str | None) -> _ServedCall:
    body = msgspec.json.decode(data, type=_Body)
    wanted = msgspec.json.decode(data, type=RequestedReplay)
    params = body.sampling_params
    if not body.input_ids:
        raise _RejectedError(_message("input_ids cannot be empty."))
    if body.stream or not body.return_logprob:
        raise _RejectedError(_message("the scripted engine needs return_logprob and no stream"))
    try:
        episode = protocol.parse_routing_key(routing_key or "")
    except ValueError as error:
        problem = f"the header {protocol.ROUTING_HEADER} must name the episode: job/instance/sample"
        raise _RejectedError(_message(problem)) from error
    request = GenerateRequest(
        episode=episode,
        turn=0,
        input_ids=InputIds.of(body.input_ids),
        max_new_tokens=params.max_new_tokens,
        sampling=_sampling(params),
        stop_token_ids=params.stop_token_ids or (),
    )
    return _ServedCall(body.rid or uuid.uuid4().hex, request, wanted)


def _sampling(params: protocol.SamplingParams) -> Sampling:
    seed = params.sampling_seed
    try:
        return Sampling(
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            min_p=params.min_p,
            seed=seed if isinstance(seed, int) else None,
        )
    except ValidationError as error:
        raise _RejectedError({"error": str(error)}) from error


def _response_body(
    call: _ServedCall,
    generation: Generation | None,
    version: str,
    seconds: float,
    experts: ExpertShape | None,
) -> object:
    """Build a 200 body; without a generation, that of a call aborted before it sampled."""
    ids = () if generation is None else generation.token_ids
    logprobs = () if generation is None else generation.logprobs
    spans = [] if generation is None else msgspec.to_builtins(generation.weight_versions)
    meta: dict[str, object] = {
        "id": call.rid,
        "finish_reason": _finish(generation),
        "weight_version": version,
        "weight_versions": spans or [{"version": version, "start": 0, "end": 0}],
        "input_token_logprobs": [],
        "output_token_logprobs": [
            [logprob, token_id, None] for logprob, token_id in zip(logprobs, ids, strict=True)
        ],
        "output_token_logprobs_length": len(ids),
        "completion_tokens": len(ids),
        "e2e_latency": seconds,
        "response_sent_to_client_ts": time.time(),
    }
    if generation is not None:
        meta |= {
            "prompt_tokens": generation.prompt_tokens,
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "cached_tokens": generation.cached_tokens,
            "cached_tokens_details": None,
            "dp_rank": None,
            **replay_meta(call.replay, call.request.input_ids.tolist(), ids, experts),
        }
    return {"text": "", "output_ids": list(ids), "meta_info": meta}


def _finish(generation: Generation | None) -> object:
    if generation is None:
        return {"type": "abort", "message": "Abort in waiting queue"}
    count = len(generation.token_ids)
    match generation.finish_reason:
        case FinishReason.STOP:
            return {"type": "stop", "matched": generation.token_ids[-1] if count else None}
        case FinishReason.LENGTH:
            return {"type": "length", "length": count}
        case FinishReason.ABORT:
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def _message(text: str) -> object:
    return {"error": {"message": text}}


async def _alive(_: web.Request) -> web.Response:
    return web.Response()


class RequestedReplay(msgspec.Struct, frozen=True):
    """The request fields that ask for replay data, as the server decodes them."""

    logprob_start_len: int = -1
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_sampling_mask: bool = False


def experts_of(ids: Sequence[int], shape: ExpertShape) -> NDArray[np.int32]:
    """Return int32 `[len(ids), layers, topk]`: the experts that each id is routed to."""
    each = np.arange(shape.layers * shape.topk, dtype=np.int32).reshape(shape.layers, shape.topk)
    return (np.asarray(ids, dtype=np.int32)[:, None, None] + each) % np.int32(EXPERTS)


def prompt_logprob(token_id: int) -> float:
    """Return the logprob of a prompt id."""
    return -(token_id % 64) / 8


def replay_meta(
    requested: RequestedReplay,
    prompt: Sequence[int],
    output: Sequence[int],
    experts: ExpertShape | None,
) -> dict[str, object]:
    """Return the requested keys of `meta_info`; `experts` is the server's own setting."""
    meta: dict[str, object] = {}
    if requested.logprob_start_len >= 0:
        returned = prompt[requested.logprob_start_len :]
        meta["input_token_logprobs"] = [
            [prompt_logprob(token_id) if position else None, token_id, None]
            for position, token_id in enumerate(returned)
        ]
    if requested.return_routed_experts and experts is not None:
        rows = experts_of([*prompt, *output][:-1], experts)[requested.routed_experts_start_len :]
        meta["routed_experts"] = base64.b64encode(rows.tobytes()).decode()
    if requested.return_sampling_mask:
        meta["output_token_sampling_mask"] = [[token_id] for token_id in output]
        meta["output_token_sampling_logprobs"] = [0.0] * len(output)
        meta["output_token_sampling_mask_length"] = len(output)
    return meta
