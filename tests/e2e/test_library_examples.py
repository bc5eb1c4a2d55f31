"""The examples of the Agentic Rollout Library's README, written for this API, print what they say.

A1, A4, A5, A16, L1, O2, T2: agents, tools and models over plain prompts; reading what came out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from aiohttp import web

from checkout import ROOT
from e2e.command import Job, swe_rollout
from swe_rollout.types.trajectory_json import from_json
from unit.engine.chat.chat_parts import ANTHROPIC_BODY, OPENAI_BODY, api, sends

Respond: TypeAlias = "Callable[[web.Request], Awaitable[web.StreamResponse]]"
FOLDER = ROOT / "examples" / "08-rollout-library"


async def printed(name: str, *arguments: str, **variables: str) -> list[str]:
    """Run an example and return its lines."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        FOLDER / f"{name}.py",
        *arguments,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    return out.decode().splitlines()


async def test_a_react_agent_answers_over_a_function() -> None:
    assert await printed("basic_usage") == ["Final response: Final Answer: 360", "Turns: 1"]


async def test_tools_are_called_in_the_words_of_a_message() -> None:
    assert await printed("tools", SEARCH_KEY="secret-of-the-search") == [
        "The answer: 12",
        "The answer: 1 found with a key: Quantum Computation and Quantum Information",
    ]


async def test_a_custom_agent_takes_its_own_steps() -> None:
    *_, answer, stop = await printed("custom_agent")

    assert (answer, stop) == ("Use sorted(values). []", "finished")


async def test_the_same_agent_asks_either_api() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "42"}}
    openai = sends({**OPENAI_BODY, "choices": [{**choice, "finish_reason": "stop"}]})
    said = [{"type": "text", "text": "42"}]
    anthropic = sends({**ANTHROPIC_BODY, "content": said, "stop_reason": "end_turn"})
    for kind, answer in (("openai", openai), ("anthropic", anthropic)):
        async with api(_also_listing(answer)) as (url, served):
            names = {"BASE_URL": url, "API_KEY": "sk-of-nobody-0123456789"}
            variables = {f"{kind.upper()}_{name}": value for name, value in names.items()}
            first, text, trainable = await printed("models", kind, "some-model", **variables)
        assert first == f"{kind}:some-model finished None"
        assert (text, trainable) == ("42", "trainable: False")
        assert "sk-of-nobody-0123456789" in str(served.requests[-1][1])


def _also_listing(answer: Respond) -> Respond:
    async def respond(call: web.Request) -> web.StreamResponse:
        if call.method == "GET":
            return web.json_response({"data": [{"id": "some-model"}]})
        return await answer(call)

    return respond


async def test_trajectories_are_read_counted_and_written(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    job = job_file(scenarios=["gold"])
    swe_rollout("run", str(job.path))
    out = tmp_path / "trajectory.json"

    lines = await printed("analysis", str(job.folder), str(out))

    (line,) = lines
    trajectory = from_json(out.read_bytes())
    assert line.startswith(f"{trajectory.episode}: {len(trajectory.turns)} turns, ")
    assert line.endswith(" calls, 1")
