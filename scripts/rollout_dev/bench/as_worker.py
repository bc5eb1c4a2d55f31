"""The loop as a worker plays it: scheduler, journal, recorder, store, events and their subscribers.

Only the sandbox is none: it prints from memory, and its changes are empty. Nothing is graded.
"""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from rollout_dev.bench.generate_server import CONTEXT
from rollout_dev.bench.loops import Client
from rollout_dev.bench.workload import SYSTEM, TASK, Workload
from rollout_dev.fileless import PrintingSandbox
from swe_rollout.agent.off_loop import settled_heap
from swe_rollout.context import Attempt
from swe_rollout.events import Events
from swe_rollout.sandbox.base import (
    Sandbox,
    SandboxDelta,
    SandboxProvider,
    SandboxRequest,
    Snapshots,
)
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.limits import FailureBudget
from swe_rollout.store.store import Store
from swe_rollout.telemetry.metrics import RolloutMetrics
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.worker.assembly import assemble
from swe_rollout.worker.backlog import begin
from swe_rollout.worker.progress_report import ShardProgress
from swe_rollout.worker.resume import open_journals
from swe_rollout.worker.scheduler import EpisodeScheduler
from swe_rollout.worker.service_health import Conditions

_AT_MOST: Final = 256
"""Episodes of a round."""
_TASK: Final = Instance(instance_id="task", problem_statement=TASK, image="image")


class AsWorker(Client):
    """A worker's scheduler, with a journal and a store on this machine."""

    def __init__(self, work: Workload, url: str) -> None:
        self._work = work
        self._url = url
        self._stack = AsyncExitStack()
        self._scheduler: EpisodeScheduler | None = None

    async def open(self) -> None:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        job = self._job(folder)
        store = Store.open(job.spec.store.uri)
        journals = await open_journals(store, job, await begin(store, job, [_TASK]))
        context = await assemble(
            job,
            [_TASK],
            sandboxes=_Printing(self._work.result.encode()),
            publish=Events(ShardProgress(Conditions()), RolloutMetrics()),
            on_note=lambda _: None,
            stack=self._stack,
            logs=store,
        )
        # All subjects encode with one vocabulary, whose cache is filled.
        parts = replace(context.agent, renderer=self._work.renderer)
        self._scheduler = EpisodeScheduler(
            replace(context, agent=parts),
            store,
            budget=FailureBudget(),
            size=_AT_MOST,
            journals=journals,
        )
        self._stack.enter_context(settled_heap())

    async def play(self, number: int, turns: int) -> int:
        assert self._scheduler is not None  # noqa: S101 - opened before
        episode = EpisodeId("bench", _TASK.instance_id, number)
        played = await self._scheduler.play(Attempt(episode, _TASK, 1))
        if played.stop_reason is not StopReason.FINISHED or len(played.turns) != turns + 1:
            why = played.failure.message if played.failure else played.stop_reason
            raise RuntimeError(f"ended after {len(played.turns)} turns: {why}")
        return len(played.turns)

    async def aclose(self) -> None:
        await self._stack.aclose()

    def _job(self, folder: str) -> RolloutJob:
        limits = {"turns": 100_000, "contextTokens": CONTEXT, "episodeSeconds": 1e6}
        spec = {
            "dataset": {"releasePairs": {}},
            "samples": _AT_MOST,
            "parallelism": _AT_MOST,
            "policy": {"sglang": {"url": self._url}, "tokenizer": self._work.path},
            "agent": {
                "tools": ["bash"],
                "systemPrompt": SYSTEM,
                "instancePrompt": "{problem_statement}",
            },
            "limits": limits,
            "grading": {"enabled": False},
            "sandbox": {"local": {}},
            "store": {"uri": f"file://{folder}"},
        }
        return RolloutJob.model_validate({"metadata": {"name": "bench"}, "spec": spec})


class _Printing(SandboxProvider):
    def __init__(self, output: bytes) -> None:
        self._output = output

    async def start(self, request: SandboxRequest) -> Sandbox:
        del request
        return _Unchanged(self._output)


class _Unchanged(PrintingSandbox, Snapshots):
    """Prints, and has no changes to journal."""

    def __init__(self, output: bytes) -> None:
        super().__init__(output)
        self._number = 0

    async def changes(self, *, since: int | None = None) -> SandboxDelta:
        del since
        self._number += 1
        return SandboxDelta(self._number)

    async def apply(self, delta: SandboxDelta) -> None:
        raise NotImplementedError
