"""A sandbox for the tests of a module of tools, with this machine's programs or busybox's alone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

import busybox
from busybox import BusyboxSandbox
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.agent import ToolUse
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import CallStatus, Observation, ToolCall
from tree_images import make_tree_image

EACH = pytest.mark.parametrize("sandbox", ["host", "busybox"], indirect=True)
"""Runs a test with the programs of a whole system, and with busybox alone."""


def folder_of(sandbox: Sandbox) -> Path:
    """Where its files lie on this machine."""
    return Path(sandbox.workdir)


def files(sandbox: Sandbox, contents: Mapping[str, bytes]) -> None:
    for name, data in contents.items():
        path = folder_of(sandbox) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def used(name: str, **configuration: object) -> ToolUse:
    """A tool with configuration, as a job names it."""
    return ToolUse(use=name, with_=configuration)


async def use(
    sandbox: Sandbox,
    tool: str | ToolUse,
    arguments: Mapping[str, object],
    *,
    output_bytes: int = 16384,
    timeout_s: float = 20,
    state: ToolState | None = None,
    name: str = "",
) -> Observation:
    """Call a tool as the loop does; `name` is which one of a toolset."""
    tools = toolbox([tool])
    spec = next(each for each in tools.specs if each.name == name) if name else tools.specs[0]
    assert spec.problems(arguments) == []
    call = ToolCall(CallStatus.OK, "", spec.name, dict(arguments))
    context = ToolContext(timeout_s, output_bytes, state=state or ToolState())
    return await tools.run(call, sandbox, context)


async def said(sandbox: Sandbox, tool: str | ToolUse, /, **arguments: object) -> str:
    return (await use(sandbox, tool, arguments)).text


@asynccontextmanager
async def started(
    root: Path, isolation: Literal["bubblewrap", "none"] = "none"
) -> AsyncIterator[Sandbox]:
    make_tree_image("tools:1", root / "images")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        provider = LocalProvider(LocalSandbox(images=str(root / "images"), isolation=isolation))
        sandbox = await provider.start(
            SandboxRequest(EpisodeId("job", "task", 0), Role.AGENT, "tools:1", "/testbed")
        )
        yield sandbox
        await sandbox.close()
        await provider.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    async with started(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if busybox.PROGRAM is None:
        pytest.skip("apt-get install busybox-static: tools must work with its programs alone")
    return busybox.install(tmp_path_factory.mktemp("busybox") / "bin")


@pytest.fixture
def sandbox(shared: Sandbox, request: pytest.FixtureRequest) -> Sandbox:
    """The module's sandbox with an empty folder: starting one for each test takes too long."""
    for entry in folder_of(shared).iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if getattr(request, "param", "host") == "host":
        return shared
    return BusyboxSandbox(shared, request.getfixturevalue("programs"))
