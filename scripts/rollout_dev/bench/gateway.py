"""What the gateway adds to a turn, by the length of the history, beside our own loop.

    scripts/bench gateway [--json]

One engine in this process answers at once. Our own loop renders an observation as a delta and reads
the answer. A harness sends its whole conversation, as all of them do, over HTTP: the gateway finds
what it goes on from, does the same work, and answers. The difference is what it adds.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from rollout_dev.fileless import PrintingSandbox
from rollout_dev.report import Report, Row, parser, silence_logs
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Message, MessageRole, Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.harness import OneEpisode, OneSession
from swe_rollout.gateway.server import MAX_BODY_BYTES, Api
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import FinishReason, Generation

LENGTHS: Final = (10_000, 60_000)
"""Tokens of history."""
GOAL_MS: Final = 5.0
_TURNS: Final = 30
"""Turns that are measured at each length."""
_OBSERVATION: Final = "the same line of output, again and again\n" * 40
_KEY: Final = "a key"


class _Instant(TokenEngine):
    """Calls bash, at once."""

    def __init__(self, renderer: Renderer) -> None:
        text = (
            '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
        )
        backend = renderer.tokenizer.backend_tokenizer
        self._ids = tuple(backend.encode(text, add_special_tokens=False).ids)

    async def info(self) -> EngineInfo:
        return EngineInfo("instant", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        ids = self._ids
        return Generation(ids, (-0.5,) * len(ids), FinishReason.STOP, len(request.input_ids))

    async def aclose(self) -> None:
        """Nothing is held."""


def main(arguments: Sequence[str]) -> int:
    """Measure and print; exit with 0 if the goal is met."""
    options = parser("scripts/bench gateway", __doc__, quick="10,000 tokens alone")
    given = options.parse_args(arguments)
    silence_logs()
    lengths = LENGTHS[:1] if given.quick else LENGTHS
    return asyncio.run(_measure(lengths)).printed(as_json=given.json)


async def _measure(lengths: Sequence[int]) -> Report:
    renderer = Renderer.load(str(tokenizer_path()))
    limits = Limits(turns=10_000, context_tokens=1 << 20, max_new_tokens=512)
    parts = AgentParts(_Instant(renderer), renderer, Toolbox([]), Prompts(), limits)
    rows, added = [], {}
    for length in lengths:
        own = await _own_loop(replace(parts, toolbox=toolbox(("bash",))), length)
        ours = await _gateway(parts, length)
        added[length] = ours - own
        rows.append(
            Row(
                f"{length} tokens",
                {
                    "own_loop_ms": round(own, 3),
                    "gateway_ms": round(ours, 3),
                    "added_ms": round(ours - own, 3),
                },
            )
        )
    return Report(
        "gateway",
        tuple(rows),
        ok=all(each <= GOAL_MS for each in added.values()),
        ratios={f"added_ms_{length}": round(each, 3) for length, each in added.items()},
        notes=(f"goal: at most {GOAL_MS:g} ms more than our own loop (p50), at every length",),
    )


def _agent(parts: AgentParts) -> AgentContext:
    return AgentContext(
        parts,
        instance=Instance(instance_id="bench", problem_statement="It fails.", image="image"),
        episode=EpisodeId("bench", "gateway", 0),
        sampling=Sampling(),
        sandbox=PrintingSandbox(_OBSERVATION.encode()),
    )


async def _own_loop(parts: AgentParts, length: int) -> float:
    agent = _agent(parts)
    await agent.begin([Message(MessageRole.USER, "It fails.")])
    while len(agent.log) < length:
        await agent.turn()
    took = []
    for _ in range(_TURNS):
        began = time.perf_counter()
        await agent.turn()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


async def _gateway(parts: AgentParts, length: int) -> float:
    agent = _agent(parts)
    session = OneSession(_KEY, Conversations.of_agent(agent))
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(Api(OneEpisode(session)).routes())
    messages: list[Any] = [{"role": "user", "content": "It fails."}]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    took: list[float] = []
    measured = 0
    async with TestServer(app) as server, ClientSession() as client:
        url, headers = server.make_url("/v1/chat/completions"), {"Authorization": f"Bearer {_KEY}"}
        while measured < _TURNS:
            body = {"model": "policy", "messages": messages, "tools": tools}
            began = time.perf_counter()
            async with client.post(url, json=body, headers=headers) as response:
                answer = await response.json()
            if answer["usage"]["prompt_tokens"] >= length:
                took.append(time.perf_counter() - began)
                measured += 1
            message = answer["choices"][0]["message"]
            call = message["tool_calls"][0]["id"]
            messages += [
                message,
                {"role": "tool", "tool_call_id": call, "content": _OBSERVATION},
            ]
    return statistics.median(took) * 1000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
