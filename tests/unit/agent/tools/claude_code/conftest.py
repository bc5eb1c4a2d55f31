"""A sandbox for the tests of a module of tools: with this machine's programs, and with busybox."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import CallStatus, Observation, ToolCall


def folder_of(sandbox: Sandbox) -> Path:
    """Where its files lie on this machine."""
    return Path(sandbox.workdir)


async def use(
    sandbox: Sandbox,
    name: str,
    arguments: Mapping[str, object],
    *,
    output_bytes: int = 16384,
    timeout_s: float = 20,
) -> Observation:
    """Call a tool as the loop does: what does not fit its schema is no call."""
    tools = toolbox([name])
    assert tools.specs[0].problems(arguments) == []
    call = ToolCall(CallStatus.OK, "", name, dict(arguments))
    return await tools.run(call, sandbox, ToolContext(timeout_s, output_bytes))


async def said(sandbox: Sandbox, name: str, /, **arguments: object) -> str:
    return (await use(sandbox, name, arguments)).text


def files(sandbox: Sandbox, contents: Mapping[str, bytes]) -> None:
    for name, data in contents.items():
        path = folder_of(sandbox) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@asynccontextmanager
async def started(root: Path, path: str | None = None) -> AsyncIterator[Sandbox]:
    folder = image_folder("tools:1", root / "images")
    (folder / "tree").mkdir(parents=True)
    env = {} if path is None else {"PATH": path}
    save_image(LocalImage("tools:1", (Mount("tree", "/testbed", writable=True),), env), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        provider = LocalProvider(LocalSandbox(images=str(root / "images"), isolation="none"))
        sandbox = await provider.start(
            SandboxRequest(EpisodeId("job", "task", 0), Role.AGENT, "tools:1", "/testbed")
        )
        yield sandbox
        await sandbox.close()
        await provider.aclose()


def busybox(folder: Path) -> str:
    """Return a PATH on which there is nothing but busybox."""
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("apt-get install busybox-static: tools must work with its programs alone")
    folder.mkdir()
    subprocess.run([program, "--install", "-s", folder], check=True)
    return str(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["host", "busybox"])
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sandbox]:
    root = tmp_path_factory.mktemp("sandbox")
    path = busybox(root / "bin") if request.param == "busybox" else None
    async with started(root, path) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(shared: Sandbox) -> Sandbox:
    """The module's sandbox with an empty folder: starting one for each test takes too long."""
    for entry in folder_of(shared).iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return shared
