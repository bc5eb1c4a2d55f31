"""The contract of tools in pods: with the programs of a whole system, and with busybox alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cluster.needs import BASE, BUSYBOX, CLUSTER
from cluster.pods import pods, running
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.testing.tool_contract import ToolsInSandbox

pytestmark = [*CLUSTER, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small() -> AsyncIterator[Sandbox]:
    async with running(BUSYBOX, pods(memory="512Mi"), deadline_s=1800.0) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole() -> AsyncIterator[Sandbox]:
    async with running(BASE, pods(memory="512Mi"), deadline_s=1800.0) as sandbox:
        yield sandbox


class TestBusybox(ToolsInSandbox):
    @pytest.fixture
    def sandbox(self, small: Sandbox) -> Sandbox:
        return small


class TestSandboxBase(ToolsInSandbox):
    @pytest.fixture
    def sandbox(self, whole: Sandbox) -> Sandbox:
        return whole
