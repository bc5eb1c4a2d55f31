"""The sandbox contract on this machine: in namespaces, and in a plain directory."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swe_rollout.events import Events
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.testing.sandbox_contract import SandboxContract
from swe_rollout.types.episode import EpisodeId
from swe_rollout.worker.publishing import PublishingSandboxes
from tree_images import make_tree_image

_REQUEST = SandboxRequest(
    episode=EpisodeId(job="contract", instance="one", sample=0),
    role=Role.AGENT,
    image="contract:1",
    workdir="/testbed",
)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_tree_image(_REQUEST.image, tmp_path / "images")
    return tmp_path / "images"


async def _local(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    sandbox = await provider.start(_REQUEST)
    yield sandbox
    await sandbox.close()
    await provider.aclose()


@pytest.mark.skipif(bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`")
class TestBubblewrap(SandboxContract):
    has_bash = shutil.which("bash") is not None

    @pytest.fixture
    async def sandbox(self, images: Path) -> AsyncIterator[Sandbox]:
        spec = LocalSandbox(images=str(images), isolation="bubblewrap")
        async for sandbox in _local(LocalProvider(spec)):
            yield sandbox


class TestPlainDirectory(SandboxContract):
    """Its commands are published besides, which changes nothing."""

    has_bash = shutil.which("bash") is not None

    @pytest.fixture
    async def sandbox(self, images: Path) -> AsyncIterator[Sandbox]:
        provider = LocalProvider(LocalSandbox(images=str(images), isolation="none"))
        async for sandbox in _local(PublishingSandboxes(provider, Events())):
            yield sandbox
