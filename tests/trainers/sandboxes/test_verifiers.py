"""verifiers' `Runtime`, against the installed base class."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import TypeAdapter
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import RuntimeInfo
from verifiers.v1.runtimes.base import Runtime

from sandbox_protocols import IMAGE, WORKDIR, Face, Opener, ProtocolContract, Ran, Spec, local
from swe_rollout.integrations.sandboxes.verifiers import SandboxRuntime

pytestmark = pytest.mark.trainers


class VerifiersFace(Face):
    lost: ClassVar[type[Exception]] = SandboxError
    told_of_time = False

    def __init__(self, runtime: SandboxRuntime) -> None:
        self.runtime = runtime

    @classmethod
    async def open(cls, spec: Spec, *, lifetime_s: float) -> VerifiersFace:
        runtime = SandboxRuntime(IMAGE, spec=spec, workdir=WORKDIR, lifetime_s=lifetime_s)
        await runtime.start()
        return cls(runtime)

    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran:
        del timeout_s
        runtime = self.runtime.with_user(user)
        result = await runtime.run(["bash", "-c", command], {})
        return Ran(result.exit_code, result.stdout, result.stderr)

    async def put(self, path: str, data: bytes) -> None:
        await self.runtime.write(path, data)

    async def get(self, path: str) -> bytes:
        data: bytes = await self.runtime.read(path)
        return data

    async def close(self) -> None:
        await self.runtime.stop()


class TestVerifiers(ProtocolContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(VerifiersFace.open, local(tmp_path))

    async def test_it_is_a_runtime_whose_record_a_trace_can_hold(self, face: VerifiersFace) -> None:
        assert isinstance(face.runtime, Runtime)
        adapter = TypeAdapter(RuntimeInfo)
        info = face.runtime.info
        assert adapter.validate_json(adapter.dump_json(info)) == info
        assert info.id
        assert info.image == IMAGE
        assert await face.runtime.alive()

    async def test_bounded_reads(self, face: VerifiersFace) -> None:
        await face.put("file", bytes(range(100)))
        assert await face.runtime.read("file", max_bytes=100) == bytes(range(100))
        with pytest.raises(SandboxError, match="over the 99 byte limit"):
            await face.runtime.read("file", max_bytes=99)
        with pytest.raises(SandboxError):
            await face.runtime.read("none")

    async def test_views_with_their_own_environment(self, face: VerifiersFace) -> None:
        view = face.runtime.with_env({"A": "1"})
        result = await view.run(["sh", "-c", 'echo "$A$B"'], {"B": "2"})
        assert result.stdout == "12\n"

    async def test_background_programs_live_on(self, face: VerifiersFace) -> None:
        script = ["sh", "-c", "echo begun; while :; do echo x >>beat; sleep 0.05; done"]
        await face.runtime.run_background(script, {}, "a log")
        until = "until test -s beat && grep begun 'a log'; do sleep 0.05; done"
        assert (await asyncio.wait_for(face.run(until), 20)).code == 0

    async def test_a_stopped_runtime_is_not_alive(self, face: VerifiersFace) -> None:
        await face.close()
        assert not await face.runtime.alive()
        assert face.runtime.stopped

    async def test_a_start_that_fails_is_the_sandboxs(self, tmp_path: Path) -> None:
        runtime = SandboxRuntime("no/such:image", spec=local(tmp_path))
        with pytest.raises(SandboxError, match="not on this machine"):
            await runtime.start()
        await runtime.stop()
