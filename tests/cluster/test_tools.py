"""The contract of tools in pods: with the programs of a whole system, and with busybox alone."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from cluster.needs import BASE, BUSYBOX, CLUSTER, KUBECONFIG
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.testing.tool_contract import ToolsInSandbox
from swe_rollout.types.episode import EpisodeId

pytestmark = [*CLUSTER, pytest.mark.asyncio(loop_scope="module")]
JOB = "test-tools"
SAMPLES = itertools.count()


@asynccontextmanager
async def running(image: str, workdir: str) -> AsyncIterator[Sandbox]:
    spec = PodSandbox(
        namespace="default",
        resources=Resources(cpu="100m", memory="512Mi", ephemeral_storage="256Mi"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", KUBECONFIG)
        provider = PodProvider(spec, job=JOB)
        episode = EpisodeId(JOB, "one__one-1", next(SAMPLES))
        sandbox = await provider.start(
            SandboxRequest(episode, Role.AGENT, image, workdir, deadline_s=1800.0)
        )
        yield sandbox
        await sandbox.close()
        await provider.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small() -> AsyncIterator[Sandbox]:
    async with running(BUSYBOX, "/root") as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole() -> AsyncIterator[Sandbox]:
    async with running(BASE, "/root") as sandbox:
        yield sandbox


class TestBusybox(ToolsInSandbox):
    @pytest.fixture
    def sandbox(self, small: Sandbox) -> Sandbox:
        return small


class TestSandboxBase(ToolsInSandbox):
    @pytest.fixture
    def sandbox(self, whole: Sandbox) -> Sandbox:
        return whole
