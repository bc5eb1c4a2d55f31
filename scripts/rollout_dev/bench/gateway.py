"""What the gateway adds to a turn, by the length of the history, beside our own loop and proxies.

    scripts/bench gateway [--json]

A harness sends its whole conversation in each turn, as all of them do. The gateway finds what it
goes on from and answers with exact tokens; our own loop does the same work without it: the
difference is what it adds. What a proxy adds is the difference to its chat server. Each server is
a process of its own; a round has new conversations, and subjects take turns in it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from aiohttp import ClientSession, TCPConnector

from rollout_dev.bench.gateway_servers import (
    CHAT,
    RLLM,
    install_rllm,
    parts,
    serving,
    serving_rllm,
)
from rollout_dev.fileless import PrintingSandbox
from rollout_dev.report import Report, Row, program
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.tools import toolbox
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance

_Message: TypeAlias = Mapping[str, Any]
OURS, OWN_LOOP, CHAT_SERVER, PROXY = "swe-rollout", "our own loop", "chat server", "bare proxy"
_BASES: Final = {OURS: OWN_LOOP, PROXY: CHAT_SERVER, RLLM: CHAT_SERVER}
"""What each is compared with, to know what it adds."""
LENGTHS: Final = {"10k_tokens": 25, "60k_tokens": 150}
"""Turns of a history; each has 400 tokens."""
AT_ONCE: Final = {1: 0.0, 64: 1.0}
"""Harnesses at once, and the seconds that the policy takes for a turn."""
GOAL_MS: Final = 5.0
FLAT_MS: Final = 1.0
"""The most that may be added at 60,000 tokens beyond what is added at 10,000."""
_ROUNDS: Final = 5
_TURNS: Final = {1: 20, 64: 4}
"""Turns that are measured in each conversation."""
_OBSERVATION: Final = "the same line of output, again and again\n" * 40
_TOOL: Final = {"name": "bash", "parameters": {"type": "object"}}
_TOLD: Final = {"name": "bash", "arguments": '{"command": "cat a"}'}

_NOTES: Final = (
    "added: to our own loop without its tools; by proxies: to their chat server",
    "one harness: the policy answers at once; 64: they are spread over the second that it takes",
    "the chat server stands in for vLLM: it answers with token ids, those of the prompt left out",
    "rllm-model-gateway is as it comes, with its SQLite store",
)


@dataclass(frozen=True, slots=True)
class _Server:
    """Where a subject answers; `{key}` is the harness's."""

    subject: str
    url: str


class _Player(Protocol):
    async def turn(self) -> None:
        """Take a turn, which is measured."""

    async def go_on(self) -> None:
        """Do what comes between turns."""


@dataclass(frozen=True, slots=True)
class _Agent:
    """One of our own loop."""

    agent: AgentContext

    async def turn(self) -> None:
        await self.agent.generate()

    async def go_on(self) -> None:
        await self.agent.run()


class _Harness:
    """Asks a server, and keeps the body that tells the conversation."""

    def __init__(self, client: ClientSession, url: str, key: str, turns: int) -> None:
        self._client, self._url = client, url.format(key=key)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        begun = {"model": "policy", "tools": [{"type": "function", "function": _TOOL}]}
        task = {"role": "user", "content": "It fails."}
        self._body = msgspec.json.encode(begun | {"messages": [task]})[:-2]
        for turn in range(turns):
            call = {"id": f"told_{turn}", "type": "function", "function": _TOLD}
            self._add({"role": "assistant", "content": None, "tool_calls": [call]})
        self._answer = b""

    async def turn(self) -> None:
        body = self._body + b"]}"
        async with self._client.post(self._url, data=body, headers=self._headers) as response:
            self._answer = await response.read()
            response.raise_for_status()

    async def go_on(self) -> None:
        self._add(msgspec.json.decode(self._answer)["choices"][0]["message"])

    def _add(self, message: _Message) -> None:
        (call,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": _OBSERVATION}
        self._body += b"," + msgspec.json.encode([message, result])[1:-1]


@program(quick="one harness with 10,000 tokens")
async def main(given: Namespace) -> Report:
    """Measure all servers."""
    lengths = dict(list(LENGTHS.items())[: 1 if given.quick else None])
    at_once = (1,) if given.quick else tuple(AT_ONCE)
    skipped = ""
    try:
        await asyncio.to_thread(install_rllm)
    except PrerequisiteError as error:
        skipped = str(error)
    p50 = defaultdict[str, dict[str, float]](dict)
    for count in at_once:
        with _servers(AT_ONCE[count], with_rllm=not skipped) as servers:
            for length, turns in lengths.items():
                sys.stderr.write(f"{length}, {count} at once\n")
                for subject, took in (await _rounds(servers, turns, count)).items():
                    p50[subject][f"{length}_ms_c{count}"] = statistics.median(took) * 1e3
    rows = [
        Row(subject, {f"p50_{key}": round(value, 2) for key, value in figures.items()} | added)
        for subject, figures in p50.items()
        for added in [{f"added_{k}": round(v, 2) for k, v in _added(p50, subject).items()}]
    ]
    if skipped:
        rows.append(Row(RLLM, skipped=skipped))
    return _report(rows, p50)


def _added(p50: dict[str, dict[str, float]], subject: str) -> dict[str, float]:
    base = p50[_BASES[subject]] if subject in _BASES else {}
    return {key: value - base[key] for key, value in p50[subject].items() if key in base}


def _report(rows: Sequence[Row], p50: dict[str, dict[str, float]]) -> Report:
    ours = _added(p50, OURS)
    theirs = _added(p50, RLLM) if RLLM in p50 else {}
    ratios = {f"ours_to_rllm_{k.replace('_ms', '')}": ours[k] / theirs[k] for k in theirs}
    short, *longer = LENGTHS
    growth = {
        f"more_at_{long}_ms_c{count}": ours[f"{long}_ms_c{count}"] - ours[f"{short}_ms_c{count}"]
        for long in longer
        for count in AT_ONCE
        if f"{long}_ms_c{count}" in ours
    }
    is_met = all(each <= GOAL_MS for each in ours.values())
    is_flat = all(each <= FLAT_MS for each in growth.values())
    is_ahead = all(each < 1 for each in ratios.values())
    goals = (
        f"goals (p50): the gateway adds at most {GOAL_MS:g} ms to our own loop, at most "
        f"{FLAT_MS:g} ms more of it at 60k tokens than at 10k, and less than each peer adds"
    )
    return Report(
        "gateway",
        tuple(rows),
        ok=is_met and is_flat and is_ahead,
        ratios={key: round(value, 2) for key, value in (ratios | growth).items()},
        notes=(goals, *_NOTES),
    )


@contextmanager
def _servers(seconds: float, *, with_rllm: bool) -> Iterator[list[_Server]]:
    with ExitStack() as running:
        chat = running.enter_context(serving("chat", seconds))
        proxy = running.enter_context(serving("proxy", chat))
        ours = running.enter_context(serving("ours", seconds))
        found = [
            _Server(OURS, ours + CHAT),
            _Server(CHAT_SERVER, chat + CHAT),
            _Server(PROXY, proxy + CHAT),
        ]
        if with_rllm:
            rllm = running.enter_context(serving_rllm(install_rllm(), chat))
            found.append(_Server(RLLM, f"{rllm}/sessions/{{key}}{CHAT}"))
        yield found


async def _rounds(servers: Sequence[_Server], turns: int, count: int) -> dict[str, list[float]]:
    took = defaultdict[str, list[float]](list)
    own = replace(parts(AT_ONCE[count]), toolbox=toolbox(("bash",)))
    for number in range(_ROUNDS):
        took[OWN_LOOP] += await _played([await _agent(own, turns) for _ in range(count)])
        for server in servers:
            async with ClientSession(connector=TCPConnector(limit=0)) as client:
                names = (f"{turns}x{number}-{place}" for place in range(count))
                harnesses = [_Harness(client, server.url, name, turns) for name in names]
                took[server.subject] += await _played(harnesses)
    return took


async def _played(players: Sequence[_Player]) -> list[float]:
    """Return how long turns took, without the policy's time."""
    count = len(players)
    await asyncio.gather(*(player.turn() for player in players))

    async def play(player: _Player, place: int) -> list[float]:
        took = []
        # Harnesses are not in step.
        await asyncio.sleep(AT_ONCE[count] * place / count)
        for _ in range(_TURNS[count]):
            await player.go_on()
            began = time.perf_counter()
            await player.turn()
            took.append(time.perf_counter() - began - AT_ONCE[count])
        return took

    played = (play(player, place) for place, player in enumerate(players))
    return [each for took in await asyncio.gather(*played) for each in took]


async def _agent(own: AgentParts, turns: int) -> _Agent:
    agent = AgentContext(
        own,
        instance=Instance(instance_id="bench", problem_statement="It fails.", image="image"),
        episode=EpisodeId("bench", "own", 0),
        sampling=Sampling(),
        sandbox=PrintingSandbox(_OBSERVATION.encode()),
    )
    await agent.begin([Message(MessageRole.USER, _OBSERVATION * turns)])
    return _Agent(agent)
