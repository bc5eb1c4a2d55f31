"""A sandbox for the tests of a module of tools."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId


@asynccontextmanager
async def started(root: Path) -> AsyncIterator[Sandbox]:
    folder = image_folder("tools:1", root / "images")
    (folder / "tree").mkdir(parents=True)
    save_image(LocalImage("tools:1", (Mount("tree", "/testbed", writable=True),), {}), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        provider = LocalProvider(LocalSandbox(images=str(root / "images"), isolation="none"))
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


@pytest.fixture
def sandbox(shared: Sandbox) -> Sandbox:
    """The module's sandbox with an empty folder: starting one for each test takes too long."""
    for entry in Path(shared.workdir).iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return shared
