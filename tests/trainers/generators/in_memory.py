"""A job in memory: sandboxes without files, and a grader that resolves every other sample."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import cast

from rollout_dev.fileless import PrintingSandbox
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.context import JobContext
from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import SandboxError
from swe_rollout.grading.grader import Grader
from swe_rollout.integrations.trainer_session import BLOCK
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.logged_progress import log_progress
from swe_rollout.sandbox.base import (
    Role,
    Sandbox,
    SandboxProvider,
    SandboxRequest,
)
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.limits import CutTurns, Limits, RetrySpec
from swe_rollout.spec.load import parse_job
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestReport, Verdict, VerdictStatus
from swe_rollout.worker.session import Session

TASKS = ("task-a", "task-b")
LISTING = b"README.md\nsrc <|im_end|>\n"


class _Provider(SandboxProvider):
    def __init__(self, lost: Collection[tuple[str, int]]) -> None:
        self._lost = lost

    async def start(self, request: SandboxRequest) -> Sandbox:
        # Sessions number their samples in blocks of their own.
        if (request.episode.instance, request.episode.sample % BLOCK) in self._lost:
            raise SandboxError("the node is gone", retryable=False)
        return PrintingSandbox(LISTING)


class _Grader:
    def request(self, instance: Instance, *, episode: EpisodeId, attempt: int) -> SandboxRequest:
        return SandboxRequest(episode, Role.GRADER, instance.image, instance.workdir, attempt, 60.0)

    async def grade(
        self, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int
    ) -> Verdict:
        del instance, patch, attempt
        resolved = episode.sample % 2 == 0
        status = VerdictStatus.RESOLVED if resolved else VerdictStatus.UNRESOLVED
        return Verdict(status, TestReport({}, {}))


class InMemoryJob(RolloutJob):
    """Its session plays on the engine that it is given."""

    @asynccontextmanager
    async def session(
        self,
        *,
        engine: TokenEngine | None = None,
        progress: object = None,
        observer: object = None,
        first_sample: int = 0,
        stored: bool = False,
    ) -> AsyncIterator[Session]:
        del progress, observer, stored
        assert engine is not None
        self._opened += 1
        await engine.info()
        limits = Limits(turns=8, context_tokens=8192, max_new_tokens=96, cut_turns=CutTurns.ANSWER)
        context = JobContext(
            agent=AgentParts(
                engine=engine,
                renderer=Renderer.load(str(tokenizer_path())),
                toolbox=toolbox(("bash", "agent", "submit")),
                prompts=Prompts(),
                limits=limits,
            ),
            sampling=self.spec.sampling,
            sandboxes=_Provider(self._lost),
            grader=cast("Grader", _Grader()),
            retry=RetrySpec(),
            publish=log_progress,
            policy=lambda _: "engine:tiny",
            spec_digest="0" * 64,
        )
        tasks = [Instance(instance_id=name, problem_statement=name, image="i") for name in TASKS]
        yield Session(self, tasks, context, first_sample=first_sample)

    _lost: Collection[tuple[str, int]] = ()
    _opened: int = 0

    @property
    def opened(self) -> int:
        """How many sessions were opened."""
        return self._opened


def in_memory_job(
    *,
    temperature: float = 1.0,
    lost: Collection[tuple[str, int]] = (),
    max_failed_fraction: float = 1.0,
) -> InMemoryJob:
    """Return the job; the sandboxes of `lost` samples never start."""
    document = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "job"},
        "spec": {
            "dataset": {"swebench": {"uri": "rows.jsonl"}},
            "policy": {"sglang": {"url": "http://127.0.0.1:1"}},
            "sampling": {"temperature": temperature},
            "sandbox": {"local": {}},
            "failureBudget": {"maxMaskedFraction": max_failed_fraction},
            "store": {"uri": "file:///nowhere"},
        },
    }
    job = InMemoryJob.model_validate(parse_job(json.dumps(document), source="test").model_dump())
    job._lost = lost
    return job
