"""Shared by tests of the gateway: its application over an engine that plays texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, cast

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.context import JobContext
from swe_rollout.gateway.admin import application
from swe_rollout.gateway.sessions import Sessions
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.base import SandboxProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.limits import Limits, RetrySpec
from swe_rollout.spec.policy import Sampling
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestReport, Verdict, VerdictStatus
from swe_rollout.worker.session import Session
from unit.agent.agent_parts import RENDERER, Player
from unit.worker.work_parts import job

KEY = "the gateway's own key"
ADMIN = {"Authorization": f"Bearer {KEY}"}
TASK = Instance(instance_id="task", problem_statement="It fails.", image="image:1")

Client: TypeAlias = "TestClient[web.Request, web.Application]"


class _Grader:
    async def grade(
        self, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int
    ) -> Verdict:
        del instance, episode, attempt
        status = VerdictStatus.RESOLVED if "fix" in patch.text else VerdictStatus.UNRESOLVED
        return Verdict(status, TestReport({}, {}))


@asynccontextmanager
async def serving(
    engine: Player, folder: Path, *, limits: Limits | None = None
) -> AsyncIterator[Client]:
    """Serve a job with one task, whose store is a folder."""
    context = JobContext(
        agent=AgentParts(engine, RENDERER, Toolbox([]), Prompts(), limits or Limits()),
        sampling=Sampling(),
        sandboxes=cast("SandboxProvider", None),
        grader=cast("Grader", _Grader()),
        retry=RetrySpec(),
        policy=lambda _: "engine:player",
        spec_digest="0" * 64,
    )
    store = Store.open(f"file://{folder}")
    sessions = await Sessions.begin(Session(job(), [TASK], context), store)
    try:
        async with TestClient(TestServer(application(sessions, KEY))) as client:
            yield client
    finally:
        await sessions.aclose()


async def open_session(client: Client) -> str:
    """Open a session and return its key."""
    response = await client.post("/sessions", headers=ADMIN, json={"task": "task"})
    assert response.status == 201, await response.text()
    return str((await response.json())["key"])


async def close_session(client: Client, sample: int = 0, patch: str = "") -> dict[str, object]:
    """Close a session and return the summary of its record."""
    path = f"/sessions/task/{sample}/close"
    response = await client.post(path, headers=ADMIN, json={"patch": patch})
    assert response.status == 200, await response.text()
    found: dict[str, object] = await response.json()
    return found
