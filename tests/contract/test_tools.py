"""The contract of tools in local sandboxes: with this machine's programs, and with busybox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

import busybox
from busybox import BusyboxSandbox
from swe_rollout.agent.tools.names import TOOL_NAMES, TOOLSET_NAMES
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.testing.tool_cases import CASES
from swe_rollout.testing.tool_contract import ToolsInSandbox
from unit.agent.tools.conftest import started

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    """A sandbox in namespaces, or in a plain directory where this machine has no bubblewrap."""
    isolation: Literal["bubblewrap", "none"] = "none" if bubblewrap.refusal() else "bubblewrap"
    async with started(tmp_path_factory.mktemp("local"), isolation) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    async with started(tmp_path_factory.mktemp("plain")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busybox.install(tmp_path_factory.mktemp("busybox") / "bin")


class TestLocal(ToolsInSandbox):
    @pytest.fixture
    def sandbox(self, local: Sandbox) -> Sandbox:
        return local


@pytest.mark.skipif(busybox.PROGRAM is None, reason="needs busybox")
class TestBusybox(ToolsInSandbox):
    @pytest.fixture
    def sandbox(self, plain: Sandbox, programs: Path) -> Sandbox:
        return BusyboxSandbox(plain, programs)


async def test_every_built_in_tool_and_toolset_has_a_case() -> None:
    called = {case.use if isinstance(case.use, str) else case.use.use for case in CASES}
    assert called == {*TOOL_NAMES, *TOOLSET_NAMES}
