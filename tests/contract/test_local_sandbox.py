"""The sandbox contract: namespaces, the plain directory, and sessions over every shell there is."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from swe_rollout.local_image import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox import bubblewrap
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local import LocalProvider
from swe_rollout.sandbox.pipe_channel import PipeChannel
from swe_rollout.sandbox.session import Session, supervisor_command
from swe_rollout.spec.job import LocalSandbox
from swe_rollout.testing.sandbox_contract import SandboxContract
from swe_rollout.trajectory import EpisodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from swe_rollout.sandbox.base import Sandbox

_REQUEST = SandboxRequest(
    episode=EpisodeId(job="contract", instance="one", sample=0),
    role=Role.AGENT,
    image="contract:1",
    workdir="/testbed",
)
_BUSYBOX = Path("/bin/busybox")


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = image_folder(_REQUEST.image, tmp_path / "images")
    (folder / "tree").mkdir(parents=True)
    save_image(LocalImage(_REQUEST.image, (Mount("tree", "/testbed", writable=True),), {}), folder)
    return tmp_path / "images"


async def _local(spec: LocalSandbox) -> AsyncIterator[Sandbox]:
    provider = LocalProvider(spec)
    sandbox = await provider.start(_REQUEST)
    yield sandbox
    await sandbox.close()
    await provider.aclose()


@pytest.mark.skipif(bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`")
class TestBubblewrap(SandboxContract):
    has_bash = shutil.which("bash") is not None

    @pytest.fixture
    async def sandbox(self, images: Path) -> AsyncIterator[Sandbox]:
        async for sandbox in _local(LocalSandbox(images=str(images), isolation="bubblewrap")):
            yield sandbox


class TestPlainDirectory(SandboxContract):
    has_bash = shutil.which("bash") is not None

    @pytest.fixture
    async def sandbox(self, images: Path) -> AsyncIterator[Sandbox]:
        async for sandbox in _local(LocalSandbox(images=str(images), isolation="none")):
            yield sandbox


class _BareShell(SandboxContract):
    """A session over a shell of this machine, without any image."""

    shell: ClassVar[str]

    @pytest.fixture
    def path(self) -> str:
        return os.environ["PATH"]

    @pytest.fixture
    async def sandbox(self, tmp_path: Path, path: str) -> AsyncIterator[Sandbox]:
        (work := tmp_path / "work").mkdir()
        channel = await PipeChannel.start(
            supervisor_command(shell=self.shell, state_dir=str(tmp_path)),
            env={"PATH": path, "LANG": "C.UTF-8"},
            stderr=tmp_path / "stderr",
        )
        session = await Session.open(channel, workdir=str(work))
        yield session
        await session.close()
        assert not await asyncio.to_thread(lambda: list(tmp_path.glob(".swe-rollout.*")))


@pytest.mark.skipif(not Path("/bin/dash").exists(), reason="needs `apt-get install dash`")
class TestDash(_BareShell):
    shell = "/bin/dash"
    has_bash = shutil.which("bash") is not None


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs `apt-get install bash`")
class TestBash(_BareShell):
    shell = "/bin/bash"
    has_bash = True


@pytest.mark.skipif(not _BUSYBOX.exists(), reason="needs `apt-get install busybox`")
class TestBusybox(_BareShell):
    """An image that has busybox and nothing else: its PATH leads to no other program."""

    shell: ClassVar[str] = ""
    delivers_interrupt = False

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        applets = tmp_path / "bin"
        applets.mkdir()
        subprocess.run([_BUSYBOX, "--install", "-s", applets], check=True)
        monkeypatch.setattr(type(self), "shell", str(applets / "sh"))
        return str(applets)
