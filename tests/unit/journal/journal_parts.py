"""Episodes over a store of files, sandboxes in memory that can be rebuilt, and processes that die.

The engine is a function of what it is asked; so is the sandbox, of its files. What a command does
is seen in them, once for each time that it ran.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zstandard

from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import Agent, loop
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import SandboxDestroyedError, SandboxError
from swe_rollout.sandbox.base import (
    ExecResult,
    Sandbox,
    SandboxDelta,
    SandboxRequest,
)
from swe_rollout.spec.limits import Limits, RetrySpec
from swe_rollout.spec.policy import Sampling
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.journals import JournalRef, Journals
from swe_rollout.tokens.replay import ExpertShape, Recording, ReplayRows
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan
from swe_rollout.worker.resume import ResumableEpisodes
from unit.agent.agent_parts import RENDERER, TOOLS, encode
from unit.worker.worker_parts import Listener

EPISODE = EpisodeId("job", "one", 0)
TASK = Instance(instance_id="one", problem_statement="fix it", image="image:1")
ATTEMPT = Attempt(EPISODE, TASK, 1)
END = "<|im_end|>"

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "noise": lambda _: bytes(64),
    "other": lambda _: zstandard.compress(msgspec.msgpack.encode({"writer": 3})),
    "bomb": lambda _: zstandard.compress(bytes(1 << 20)),
}
"""What may become of an object of the store."""


class Death:
    """When a process dies: at a call of the world, counted from 1. Whoever asks then waits."""

    def __init__(self, at: int | None = None, *, finishes_writes: bool = True) -> None:
        self._at = at
        self._calls = 0
        self.finishes_writes = finishes_writes
        """Whether a write in progress still comes to its end, as one that is on its way does."""
        self.happened = asyncio.Event()

    async def call(self) -> None:
        """Count a call of the world; that of a dead process never ends."""
        self._calls += 1
        if self._calls == self._at:
            self.happened.set()
        if self.happened.is_set():
            await asyncio.Event().wait()


@dataclass
class Engine(TokenEngine):
    """Answers by what it is asked: the text of the turn in its branch. With experts and weights."""

    texts: Mapping[int, Sequence[str]]
    """By branch; the last text again when more are asked for."""
    death: Death = field(default_factory=Death)
    asked: list[tuple[int, int]] = field(default_factory=list)
    """Branch and turn of each call."""
    pause_s: float = 0.0

    async def info(self) -> EngineInfo:
        return EngineInfo("engine", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        await self.death.call()
        self.asked.append((request.branch, request.turn))
        await asyncio.sleep(self.pause_s)
        texts = self.texts.get(request.branch, self.texts[0])
        script = encode(texts[min(_turns_in(request), len(texts) - 1)] + END)
        ids = tuple(script[: request.max_new_tokens])
        total = len(request.input_ids) + len(ids)
        return Generation(
            ids,
            tuple(-0.1 - index / 7 for index in range(len(ids))),
            FinishReason.STOP if len(ids) == len(script) else FinishReason.LENGTH,
            prompt_tokens=len(request.input_ids),
            cached_tokens=len(request.input_ids) // 2,
            weight_versions=(WeightSpan(f"v{request.turn}", 0, len(ids)),) if ids else (),
            replay=None if request.replay is None else _rows(request, total),
        )


_OPENS = encode("<|im_start|>assistant\n")


def _turns_in(request: GenerateRequest) -> int:
    """Count the turns before this one in its prompt."""
    ids = request.input_ids.tolist()
    size = len(_OPENS)
    return sum(ids[at : at + size] == _OPENS for at in range(len(ids) - size + 1)) - 1


def _rows(request: GenerateRequest, total: int) -> ReplayRows | None:
    if request.replay is None or request.replay.experts is None:
        return None
    rows = total - 1 - request.replay.experts_from
    numbers = np.arange(rows * 2, dtype=np.int32).reshape(rows, 1, 2) % 8
    return ReplayRows(experts=numbers)


@dataclass
class Disk(Sandbox):
    """A sandbox whose files are in memory; its deltas hold all of them."""

    death: Death = field(default_factory=Death)
    files: dict[str, str] = field(default_factory=dict)
    number: int = 0
    processes: tuple[str, ...] = ()
    unsaved: tuple[str, ...] = ()
    lost: bool = False
    destroyed: str = ""
    """What shows that a command has ended it."""
    closed: bool = False
    secret: str = ""
    """What `leak` prints."""

    @property
    def workdir(self) -> str:
        return "/testbed"

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        **_: object,
    ) -> ExecResult:
        if "MAX_BYTES" in (env or {}):
            return _printed(json.dumps(self.files, sort_keys=True))
        if "BASE" in (env or {}):
            self.files["prepared"] = "yes"
            return _printed("abc123\n")
        await self.death.call()
        self._check()
        return await self._run(command if isinstance(command, str) else " ".join(command))

    async def _run(self, command: str) -> ExecResult:
        verb, _, word = command.partition(" ")
        match verb:
            case "add":
                self.files["log"] = self.files.get("log", "") + word
            case "serve":
                self.processes = (*self.processes, word)
            case "die":
                self.lost = True
            case "destroy":
                self.destroyed = word or "OOMKilled, exit code 137"
            case "leak":
                return _printed(self.secret)
            case "sleep":
                await asyncio.sleep(float(word))
        self._check()
        return _printed(f"{command}: {self.files.get('log', '')}")

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        del max_bytes
        await self.death.call()
        self._check()
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path].encode()

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        del mode
        await self.death.call()
        self._check()
        self.files[path] = data.decode()

    async def end_processes(self) -> None:
        self.processes = ()

    async def close(self) -> None:
        self.closed = True

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        del since
        await asyncio.sleep(0)
        self._check()
        self.number += 1
        data = json.dumps(self.files).encode()
        return SandboxDelta(self.number, data, unsaved=self.unsaved, processes=self.processes)

    async def apply(self, delta: SandboxDelta) -> None:
        assert delta.number > self.number
        self.number, self.files = delta.number, json.loads(delta.data)

    def _check(self) -> None:
        if self.destroyed:
            raise SandboxDestroyedError("the sandbox was destroyed", why=self.destroyed)
        if self.lost:
            raise SandboxError("the sandbox is lost")


def _printed(text: str) -> ExecResult:
    data = text.encode()
    return ExecResult(0, data, b"", stdout_bytes=len(data), duration_s=0.01)


@dataclass
class Disks:
    """Starts sandboxes in memory."""

    death: Death
    started: list[Disk] = field(default_factory=list)
    secret: str = ""
    make: Callable[[], Disk] = Disk

    async def start(self, request: SandboxRequest) -> Disk:
        del request
        disk = replace(self.make(), death=self.death, secret=self.secret)
        self.started.append(disk)
        return disk

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Nothing is warm."""

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """There are none."""

    async def aclose(self) -> None:
        """There is nothing to release."""


class MortalJournals(Journals):
    """The journals of a process that may be dead."""

    def __init__(self, folder: Path, death: Death | None = None) -> None:
        super().__init__(Bucket.open(f"file://{folder}"), "job")
        self._death = death or Death()
        self.written = 0
        self._wrote = asyncio.Condition()

    async def create(self, ref: JournalRef, number: int, data: bytes) -> bool:
        if self._death.happened.is_set() and not self._death.finishes_writes:
            await asyncio.Event().wait()
        is_ours = await super().create(ref, number, data)
        async with self._wrote:
            self.written += 1
            self._wrote.notify_all()
        return is_ours

    async def until_written(self, count: int) -> None:
        """Return once so many chunks were written."""
        async with self._wrote:
            await self._wrote.wait_for(lambda: self.written >= count)


@dataclass
class Life:
    """One process, and what it plays an episode with."""

    folder: Path
    engine: Engine
    program: Agent = loop
    tools: Toolbox = TOOLS
    limits: Limits = Limits(turns=12, context_tokens=4096, max_new_tokens=256)  # noqa: RUF009
    death: Death = field(default_factory=Death)
    retry: RetrySpec = RetrySpec(attempts=3, backoff_seconds=0.001)  # noqa: RUF009
    secret: str = ""
    make: Callable[[], Disk] = Disk
    spec_digest: str = "0123456789ab"

    def __post_init__(self) -> None:
        self.engine.death = self.death
        self.disks = Disks(self.death, secret=self.secret, make=self.make)
        self.journals = MortalJournals(self.folder, self.death)

    def context(self) -> JobContext:
        """What its episodes share."""
        recording = Recording(experts=ExpertShape(1, 2))
        return JobContext(
            agent=AgentParts(self.engine, RENDERER, self.tools, Prompts(), self.limits, recording),
            sampling=Sampling(seed=7),
            sandboxes=self.disks,
            grader=None,
            retry=self.retry,
            publish=Listener(),
            policy=lambda _: "engine",
            spec_digest=self.spec_digest,
            program=self.program,
        )

    async def episodes(self) -> ResumableEpisodes:
        """The journals that it finds."""
        return ResumableEpisodes(self.journals, dict(await self.journals.listed()))

    async def play(self, attempt: Attempt = ATTEMPT) -> Trajectory | None:
        """Play the attempt; none where the process dies meanwhile."""
        episodes = await self.episodes()
        playing = asyncio.create_task(episodes.play(attempt, self.context()))
        dying = asyncio.create_task(self.death.happened.wait())
        await asyncio.wait({playing, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if playing.done():
            return playing.result()
        # What is on its way to the store arrives, or not.
        await asyncio.sleep(0.02)
        while not playing.done():
            playing.cancel()
            await asyncio.wait({playing}, timeout=0.05)
        return None


async def undisturbed(life: Life) -> Trajectory:
    """Play the episode in one go."""
    found = await life.play()
    assert found is not None
    return found


def essence(trajectory: Trajectory) -> dict[str, Any]:
    """A record without what may differ: times, and that it was resumed."""
    record: dict[str, Any] = msgspec.json.decode(to_json(trajectory))
    for name in ("timing", "finished_at", "resumption"):
        record.pop(name, None)
    for turn in record["turns"]:
        for name in ("engine_s", "tools_s"):
            del turn[name]
        for observation in turn["observations"]:
            del observation["duration_s"]
    return record
