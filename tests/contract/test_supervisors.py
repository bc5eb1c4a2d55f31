"""The supervisor without any image: brought by every shell, and the contract with busybox."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.local.pipe_channel import PipeChannel
from swe_rollout.sandbox.session.bootstrap import install_command
from swe_rollout.sandbox.session.session import Session
from swe_rollout.testing.sandbox_contract import SandboxContract

_BUSYBOX = Path("/bin/busybox")


async def _session(folder: Path, shell: str, path: str) -> Session:
    """Open a session over programs of this machine, without any image."""
    (work := folder / "work").mkdir()
    channel = await PipeChannel.start(
        [shell, *install_command(folder=str(folder))[1:]],
        env={"PATH": path, "LANG": "C.UTF-8"},
    )
    return await Session.open(channel, workdir=str(work))


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(
            f"/bin/{name}",
            marks=pytest.mark.skipif(
                not Path("/bin", name).exists(), reason=f"needs `apt-get install {name}`"
            ),
        )
        for name in ("dash", "bash", "mksh")
    ],
)
async def test_every_shell_brings_the_supervisor(tmp_path: Path, shell: str) -> None:
    """From then on, what runs there is the supervisor, whose contract is held elsewhere."""
    session = await _session(tmp_path, shell, os.environ["PATH"])
    data = os.urandom(3_000_001)
    await session.write_file("file", data)
    result = await session.exec("cat file; exit 3", max_output=len(data))
    assert (result.stdout, result.exit_code) == (data, 3)
    await session.close()


@pytest.mark.skipif(not _BUSYBOX.exists(), reason="needs `apt-get install busybox`")
class TestBusybox(SandboxContract):
    """An image that has busybox and nothing else: its PATH leads to no other program."""

    @pytest.fixture
    def applets(self, tmp_path: Path) -> Path:
        (applets := tmp_path / "bin").mkdir()
        subprocess.run([_BUSYBOX, "--install", "-s", applets], check=True)
        return applets

    @pytest.fixture
    async def sandbox(self, tmp_path: Path, applets: Path) -> AsyncIterator[Sandbox]:
        session = await _session(tmp_path, str(applets / "sh"), str(applets))
        yield session
        await session.close()
