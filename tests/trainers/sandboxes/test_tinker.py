"""tinker-cookbook's `SandboxInterface`, against the installed one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from tinker_cookbook.sandbox import SandboxInterface, SandboxTerminatedError

from sandbox_protocols import IMAGE, WORKDIR, Face, Opener, ProtocolContract, Ran, Spec, local
from swe_rollout.integrations.sandboxes.tinker import Sandbox

pytestmark = pytest.mark.trainers


class TinkerFace(Face):
    lost: ClassVar[type[Exception]] = SandboxTerminatedError
    takes_user = False

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @classmethod
    async def open(cls, spec: Spec, *, lifetime_s: float) -> TinkerFace:
        return cls(await Sandbox.create(IMAGE, spec=spec, workdir=WORKDIR, timeout=lifetime_s))

    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran:
        assert user is None
        result = await self.sandbox.run_command(command, timeout=timeout_s or 60)
        code = result.exit_code
        return Ran(code, result.stdout, result.stderr, timed_out=code == 124)

    async def put(self, path: str, data: bytes) -> None:
        assert (await self.sandbox.write_file(path, data)).exit_code == 0

    async def close(self) -> None:
        await self.sandbox.cleanup()


class TestTinker(ProtocolContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(TinkerFace.open, local(tmp_path))

    async def test_it_is_what_the_cookbook_asks_for(self, face: TinkerFace) -> None:
        assert isinstance(face.sandbox, SandboxInterface)
        assert face.sandbox.sandbox_id
        await face.sandbox.send_heartbeat()

    async def test_files_are_results(self, face: TinkerFace) -> None:
        written = await face.sandbox.write_file("run", "#!/bin/sh\necho é\n", executable=True)
        assert written.exit_code == 0
        assert (await face.run("./run")).stdout == "é\n"
        assert (await face.sandbox.read_file("run", max_bytes=2)).stdout == "#!"
        assert (await face.sandbox.read_file("none")).exit_code == 1
        assert (await face.sandbox.write_file("/proc/none", "x")).exit_code == 1

    async def test_a_heartbeat_of_a_closed_sandbox_raises(self, face: TinkerFace) -> None:
        await face.close()
        with pytest.raises(SandboxTerminatedError):
            await face.sandbox.send_heartbeat()
