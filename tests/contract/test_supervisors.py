"""The sandbox contract: the supervisor, brought by every shell there is on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.local.pipe_channel import PipeChannel
from swe_rollout.sandbox.session.bootstrap import install_command
from swe_rollout.sandbox.session.session import Session
from swe_rollout.testing.sandbox_contract import SandboxContract

_BUSYBOX = Path("/bin/busybox")
_MKSH = Path("/bin/mksh")


class _Bare(SandboxContract):
    """A session over programs of this machine, without any image."""

    shell: ClassVar[str] = "/bin/sh"

    @pytest.fixture
    def path(self) -> str:
        return os.environ["PATH"]

    @pytest.fixture
    async def sandbox(self, tmp_path: Path, path: str) -> AsyncIterator[Sandbox]:
        (work := tmp_path / "work").mkdir()
        channel = await PipeChannel.start(
            [self.shell, *install_command(folder=str(tmp_path))[1:]],
            env={"PATH": path, "LANG": "C.UTF-8"},
        )
        session = await Session.open(channel, workdir=str(work))
        yield session
        await session.close()


@pytest.mark.skipif(not Path("/bin/dash").exists(), reason="needs `apt-get install dash`")
class TestDash(_Bare):
    shell = "/bin/dash"
    has_bash = shutil.which("bash") is not None


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs `apt-get install bash`")
class TestBash(_Bare):
    shell = "/bin/bash"
    has_bash = True


@pytest.mark.skipif(not _MKSH.exists(), reason="needs `apt-get install mksh`")
class TestMksh(_Bare):
    shell = str(_MKSH)
    has_bash = shutil.which("bash") is not None


@pytest.mark.skipif(not _BUSYBOX.exists(), reason="needs `apt-get install busybox`")
class TestBusybox(_Bare):
    """An image that has busybox and nothing else: its PATH leads to no other program."""

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        applets = tmp_path / "bin"
        applets.mkdir()
        subprocess.run([_BUSYBOX, "--install", "-s", applets], check=True)
        monkeypatch.setattr(type(self), "shell", str(applets / "sh"))
        return str(applets)
