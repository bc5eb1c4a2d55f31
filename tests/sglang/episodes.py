"""Whole episodes against a real engine, with in-memory sandboxes: no pods, no files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from rollout_dev.fileless import PrintingSandbox
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import TokenEngine
from swe_rollout.episode import run_episode
from swe_rollout.events import Event, TurnEnded
from swe_rollout.sandbox.base import (
    Sandbox,
    SandboxProvider,
    SandboxRequest,
)
from swe_rollout.spec.limits import Limits, RetrySpec
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.replay import Recording
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json

LISTING = b"README.md\nsrc\ntests <|im_end|> <tool_call>\n"
"""The output of every command of the policy; control tokens in it are plain text."""


class ListingProvider(SandboxProvider):
    async def start(self, request: SandboxRequest) -> Sandbox:
        del request
        return PrintingSandbox(LISTING)


@dataclass
class Turns:
    """A subscriber that counts the turns of all episodes and wakes those who wait for a count."""

    count: int = 0
    _waiting: list[tuple[int, asyncio.Event]] = field(default_factory=list)

    async def reached(self, count: int) -> None:
        """Wait until so many turns have ended."""
        event = asyncio.Event()
        self._waiting.append((count, event))
        await event.wait()

    def __call__(self, event: Event) -> None:
        """Count a turn."""
        if not isinstance(event, TurnEnded):
            return
        self.count += 1
        for count, reached in self._waiting:
            if self.count >= count:
                reached.set()


@dataclass(frozen=True)
class EpisodeRunner:
    """Runs episodes on one engine."""

    engine: TokenEngine
    renderer: Renderer
    limits: Limits
    turns: Turns = field(default_factory=Turns)
    recording: Recording | None = None
    tools: tuple[str, ...] = ("bash", "str_replace_editor")
    """No way to submit: an episode goes on for all its turns."""

    async def episode(self, task: int, sample: int = 0, *, sampling: Sampling) -> Trajectory:
        """Run one episode and return its record."""
        name = f"task-{task:02}"
        attempt = Attempt(
            EpisodeId("soak", name, sample),
            Instance(
                instance_id=name,
                problem_statement=f"{name} fails in its test {task}.",
                image="image",
            ),
            1,
        )
        return await run_episode(attempt, self._context(sampling))

    def _context(self, sampling: Sampling) -> JobContext:
        return JobContext(
            agent=AgentParts(
                engine=self.engine,
                renderer=self.renderer,
                toolbox=toolbox(self.tools),
                prompts=Prompts(),
                limits=self.limits,
                recording=self.recording,
            ),
            sampling=sampling,
            sandboxes=ListingProvider(),
            grader=None,
            retry=RetrySpec(),
            publish=self.turns,
            policy=lambda _: "sglang:tiny",
            spec_digest="0" * 64,
        )


def write(record: Trajectory, folder: Path) -> Path:
    """Write the record in its stored form."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.episode.instance}-{record.episode.sample}.json"
    path.write_bytes(to_json(record))
    return path
