"""slime's generate over HTTP, at the address of slime's router: engine, tokenizer, experts."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from aiohttp import web

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.scripted.server import ServerOptions, experts_of, make_app
from swe_rollout.integrations import slime
from swe_rollout.launcher.sync import let_go
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.tokens.replay import ExpertShape, RoutedExperts
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan
from unit.engine.engine_parts import serving
from unit.integrations.rollouts import END, RENDERER, SUBMIT, bash, encode, write_job
from unit.integrations.slime_fields import Sample, Status, arguments
from unit.integrations.slime_parts import SAMPLING

PLAYS = ("Look.\n" + bash("ls"), SUBMIT)
OPENING = encode("<|im_start|>assistant\n")
SHAPE = ExpertShape(layers=3, topk=2)


@dataclass
class Engine(TokenEngine):
    """Plays texts, of which each tells by the ids before it that it is next."""

    requests: list[GenerateRequest] = field(default_factory=list)

    async def info(self) -> EngineInfo:
        return EngineInfo("tiny", 8192, RENDERER.vocab_size, "v3", str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        ids = request.input_ids.tolist()
        size = len(OPENING)
        turns = sum(ids[at : at + size] == OPENING for at in range(len(ids)))
        said = encode(PLAYS[turns - 1] + END)
        spans = (WeightSpan("v3", 0, len(said)),)
        logprobs = (-0.5,) * len(said)
        return Generation(tuple(said), logprobs, FinishReason.STOP, len(ids), weight_versions=spans)


@asynccontextmanager
async def router_of(engine: Engine, experts: ExpertShape | None = None) -> AsyncIterator[Any]:
    """Serve as a router does: it also lists its workers. Yields slime's arguments for it."""
    app = make_app(engine, ServerOptions(experts=experts))

    async def workers(_: web.Request) -> web.Response:
        return web.json_response({"workers": [], "total": 0})

    app.router.add_get("/workers", workers)
    async with serving(app) as url:
        address = urlsplit(url)
        yield {"sglang_router_ip": address.hostname, "sglang_router_port": address.port}
        await let_go()


async def test_the_policy_of_the_job_is_replaced_by_slimes_router(tmp_path: Path) -> None:
    engine = Engine()
    async with router_of(engine) as address:
        args = arguments(swe_rollout_job=str(write_job(tmp_path)), **address)
        sample: Any = Sample(index=1, group_index=0, metadata={"instance_id": "one"})

        assert await slime.generate(args, sample, SAMPLING) is sample

    assert (sample.status, sample.reward) == (Status.COMPLETED, 0.2)
    assert sample.weight_versions == ["v3"]
    assert sum(sample.loss_mask) == sum(len(encode(each + END)) for each in PLAYS)
    assert {each.sampling.temperature for each in engine.requests} == {0.8}
    episodes = {str(each.episode) for each in engine.requests}
    assert episodes == {sample.metadata["swe_rollout"]["episode"]}


@pytest.mark.parametrize("record", [{}, {"record": {"promptLogprobs": True}}])
async def test_routed_experts_are_those_of_every_token_but_the_last(
    tmp_path: Path, record: dict[str, object]
) -> None:
    """By slime's flag, in the shape of slime's model, whatever else the job's file records."""
    sglang = {"url": "http://127.0.0.1:9", **record}
    policy = {"sglang": sglang, "tokenizer": str(tokenizer_path())}
    async with router_of(Engine(), SHAPE) as address:
        args = arguments(
            swe_rollout_job=str(write_job(tmp_path, policy=policy)),
            use_rollout_routing_replay=True,
            num_layers=SHAPE.layers,
            moe_router_topk=SHAPE.topk,
            **address,
        )
        sample: Any = Sample(index=1, group_index=0, metadata={"instance_id": "one"})
        await slime.generate(args, sample, SAMPLING)

    found = sample.rollout_routed_experts
    assert found.shape == (len(sample.tokens) - 1, SHAPE.layers, SHAPE.topk)
    assert found.dtype == np.int32
    assert np.array_equal(found, experts_of(sample.tokens[:-1], SHAPE))


async def test_a_server_without_routed_experts_is_a_failure_that_names_them(
    tmp_path: Path,
) -> None:
    async with router_of(Engine()) as address:
        args = arguments(
            swe_rollout_job=str(write_job(tmp_path)),
            use_rollout_routing_replay=True,
            num_layers=SHAPE.layers,
            moe_router_topk=SHAPE.topk,
            num_experts=4,
            **address,
        )
        sample: Any = Sample(index=1, group_index=0, metadata={"instance_id": "one"})
        await slime.generate(args, sample, SAMPLING)

    assert (sample.status, sample.reward, sample.remove_sample) == (Status.ABORTED, None, True)
    assert "routed experts" in sample.metadata["swe_rollout"]["failure"]
    # slime asks each sample of a batch for experts, and takes a layer of zeros for a fault.
    found = sample.rollout_routed_experts
    assert found.shape == (len(sample.tokens) - 1, SHAPE.layers, SHAPE.topk)
    assert found.any(axis=(0, 2)).all()


@pytest.mark.parametrize("known", [0, 2, 5])
def test_experts_are_those_known_of_the_tokens_that_are_left(known: int) -> None:
    sample, shape = Sample(tokens=[1, 2, 3, 4]), ExpertShape(2, 3)
    table = np.full((known, 2, 3), 3, dtype=np.uint8)
    stored = RoutedExperts(known, 2, 3, "uint8", base64.b64encode(table.tobytes()).decode())

    found = slime._experts(arguments(num_experts=5), sample, stored if known else None, shape)

    assert found.shape == (3, 2, 3)
    assert found.dtype == np.int32
    assert (found[:known] == 3).all()
    assert {len(set(of)) for row in found[known:] for of in row.tolist()} <= {3}
    assert found.max(initial=0) < 5
