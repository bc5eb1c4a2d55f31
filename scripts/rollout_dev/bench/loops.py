"""The agent loops that `bench loop` compares, their rounds, and the server they play against."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypedDict

import aiohttp

from rollout_dev.bench import generate_server
from rollout_dev.bench.common import served
from rollout_dev.bench.generate_server import CONTEXT
from rollout_dev.bench.workload import FIRST, LOGPROB, SYSTEM, TASK, TOOLS, Workload
from rollout_dev.fileless import PrintingSandbox
from rollout_dev.peers.plain_tokens import written_delta
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import loop, run_agent
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.tools import toolbox
from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.chat.base import ChatEngine
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.events import (
    AttemptBegan,
    AttemptEnded,
    Phase,
    PhaseBegan,
    Subscriber,
    TurnEnded,
)
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.worker.publishing import publishing_engine, publishing_sandbox


class _Meta(TypedDict):
    output_token_logprobs: list[tuple[float, int, str | None]]


class _Response(TypedDict):
    text: str
    meta_info: _Meta


class Client(Protocol):
    """One implementation of the agent loop."""

    async def open(self) -> None:
        """Open the connections that all episodes share."""
        ...

    async def play(self, number: int, turns: int) -> int:
        """Play an episode of `turns` tool turns; return its number of generations."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class Ours(Client):
    """The real agent over the real `EnginePool`."""

    def __init__(self, work: Workload, url: str, publish: Subscriber | None = None) -> None:
        self._work = work
        self._url = url
        self._publish = publish
        self._toolbox = toolbox(["bash"])
        self._pool: EnginePool | None = None

    async def open(self) -> None:
        policy = SglangPolicy.model_validate({"url": self._url})
        self._pool = EnginePool(policy, vocab_size=self._work.renderer.vocab_size)

    async def play(self, number: int, turns: int) -> int:
        # This is how a worker plays it, without a real sandbox or grader.
        assert self._pool is not None  # noqa: S101 - opened before
        episode = EpisodeId("bench", f"task-{number}", 0)
        engine: TokenEngine | ChatEngine = self._pool
        sandbox: Sandbox = PrintingSandbox(self._work.result.encode())
        if (publish := self._publish) is not None:
            engine = publishing_engine(engine, publish, lambda _: "sglang:bench")
            request = SandboxRequest(episode, Role.AGENT, "image", sandbox.workdir)
            sandbox = publishing_sandbox(sandbox, publish, request)
            publish(AttemptBegan(episode, 1))
            publish(PhaseBegan(episode, Phase.AGENT))
        context = AgentContext(
            AgentParts(
                engine=engine,
                renderer=self._work.renderer,
                toolbox=self._toolbox,
                prompts=Prompts(system=SYSTEM, instance="{problem_statement}"),
                limits=Limits(turns=turns + 1, context_tokens=CONTEXT, episode_seconds=1e6),
            ),
            instance=Instance(instance_id=episode.instance, problem_statement=TASK, image="image"),
            episode=episode,
            sampling=Sampling(),
            sandbox=sandbox,
            on_turn=lambda turn: publish(TurnEnded(episode, turn)) if publish else None,
        )
        stop = await run_agent(loop, context)
        if publish is not None:
            publish(AttemptEnded(episode, None))
        self._pool.release(episode)
        if stop is not StopReason.FINISHED or len(context.turns) != turns + 1:
            raise RuntimeError(f"ended after {len(context.turns)} turns: {stop}")
        return len(context.turns)

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()


class Floor(Client):
    """The bare loop: growing lists, one session, a hand-written delta, no checks."""

    def __init__(self, work: Workload, url: str) -> None:
        self._work = work
        self._url = url
        self._session: aiohttp.ClientSession | None = None
        self._backend = work.renderer.tokenizer.backend_tokenizer

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def play(self, number: int, turns: int) -> int:
        del number
        log = self._log()
        log.add(self._work.renderer.prompt(FIRST, TOOLS).ids)
        for turn in range(turns + 1):
            response = await self._generate(log)
            entries = response["meta_info"]["output_token_logprobs"]
            log.add([entry[1] for entry in entries], [entry[0] for entry in entries])
            if not _command(response["text"]):
                return turn + 1
            text = written_delta([self._work.result])
            log.add(self._backend.encode(text, add_special_tokens=False).ids)
        raise RuntimeError("the server went on calling tools")

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _log(self) -> _Lists:
        return _Lists()

    async def _generate(self, log: _Lists) -> _Response:
        assert self._session is not None  # noqa: S101 - opened before
        headers = {"Content-Type": "application/json"}
        url = f"{self._url}/generate"
        async with self._session.post(url, data=log.body(), headers=headers) as response:
            body: _Response = await response.json()
            return body


class TextFloor(Floor):
    """The same loop, but it keeps the text of the request, which grows with the lists."""

    def _log(self) -> _Lists:
        return _Text()


_REST: Final = {
    "sampling_params": {"max_new_tokens": 4096, "temperature": 1.0},
    "return_logprob": True,
}


class _Lists:
    def __init__(self) -> None:
        self._ids: list[int] = []
        self._mask: list[int] = []
        self._logprobs: list[float] = []

    def add(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        self._ids += ids
        self._mask += [int(logprobs is not None)] * len(ids)
        self._logprobs += logprobs or [0.0] * len(ids)

    def body(self) -> bytes:
        return json.dumps({"input_ids": self._ids, **_REST}).encode()


class _Text(_Lists):
    def __init__(self) -> None:
        super().__init__()
        self._text = bytearray()

    def add(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        super().add(ids, logprobs)
        self._text += b"," * bool(self._text) + ",".join(map(str, ids)).encode()

    def body(self) -> bytes:
        rest = json.dumps(_REST).encode()
        return b'{"input_ids":[%b],%b' % (bytes(self._text), rest[1:])


def _command(text: str) -> str:
    """Return the command of a turn's call; empty if there is none."""
    _, opener, rest = text.partition("<tool_call>")
    if not opener:
        return ""
    call = json.loads(rest.partition("</tool_call>")[0])
    return str(call["arguments"]["command"])


class Strands(Client):
    """strands-sglang's Agent."""

    def __init__(self, work: Workload, url: str) -> None:
        # The package may not be installed.
        from rollout_dev.peers.strands_loop import StrandsLoop  # noqa: PLC0415

        self._loop = StrandsLoop(work.renderer.tokenizer, url, system=SYSTEM, result=work.result)

    async def open(self) -> None:
        await self._loop.open()

    async def play(self, number: int, turns: int) -> int:
        # This raises EpisodeDiedError at the limit of its recursion.
        del number, turns
        return await self._loop.play(TASK)

    async def aclose(self) -> None:
        await self._loop.aclose()


@dataclass(frozen=True, slots=True)
class Entrant:
    """A subject: its name, and a factory that makes its client from a server's address."""

    name: str
    client: Callable[[str], Client]


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that run at the same time."""

    url: str
    episodes: int
    turns: int
    """Tool turns of each episode."""


@dataclass(slots=True)
class Samples:
    """The samples of one subject, by round."""

    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """CPU time of the client's process per turn."""

    @property
    def turns_per_s(self) -> float:
        """Turns per second of the median round."""
        return statistics.median(self.per_s)

    def ratio_to(self, other: Samples) -> float:
        """Return the median over rounds of the ratio to another subject in the same minute."""
        pairs = zip(self.per_s, other.per_s, strict=True)
        return statistics.median(own / theirs for own, theirs in pairs)

    def cpu_ratio_to(self, other: Samples) -> float:
        """Return the median over rounds of how often its CPU time a turn fits into the other's."""
        pairs = zip(self.cpu_ms, other.cpu_ms, strict=True)
        return statistics.median(theirs / own for own, theirs in pairs)

    @property
    def client_cpu_ms(self) -> float:
        """CPU time per turn in the median round."""
        return statistics.median(self.cpu_ms)


def play(entrant: Entrant, batch: Batch, samples: Samples) -> None:
    """Play one round."""
    gc.collect()
    asyncio.run(_play(entrant, batch, samples))


async def _play(entrant: Entrant, batch: Batch, samples: Samples) -> None:
    client = entrant.client(batch.url)
    await client.open()
    try:
        began, cpu = time.perf_counter(), time.process_time()
        played = await asyncio.gather(
            *(client.play(number, batch.turns) for number in range(batch.episodes))
        )
        took, used = time.perf_counter() - began, time.process_time() - cpu
    finally:
        await client.aclose()
    if set(played) != {batch.turns + 1}:
        raise RuntimeError(f"{entrant.name} had {sorted(set(played))} turns, not {batch.turns + 1}")
    samples.per_s.append(sum(played) / took)
    samples.cpu_ms.append(1e3 * used / sum(played))


@contextmanager
def serving(work: Workload, turns: int) -> Iterator[str]:
    """Run a server whose policy calls a tool in `turns` turns, then finishes; yield its address."""
    responses = [
        {"ids": turn.ids, "text": turn.text, "logprob": LOGPROB}
        for turn in (*work.turns(turns), work.last())
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.json"
        script = {"marker": work.marker(), "responses": responses}
        file.write_text(json.dumps(script), "utf-8")
        with served(generate_server.__name__, str(file)) as url:
            yield url
