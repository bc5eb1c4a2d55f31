"""NeMo-Gym's `SandboxProvider`, driven by its own public sandbox API."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pytest
from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxProvider,
    SandboxSpec,
    SandboxStatus,
    create_provider,
    register_provider,
)

from sandbox_protocols import IMAGE, WORKDIR, Face, Opener, ProtocolContract, Ran, Spec, local
from swe_rollout.integrations.sandboxes.nemo_gym import Provider

pytestmark = pytest.mark.trainers


class GymFace(Face):
    def __init__(self, sandbox: AsyncSandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.file = folder / "file"

    @classmethod
    async def open(cls, spec: Spec, folder: Path, *, lifetime_s: float) -> GymFace:
        register_provider("swe_rollout", Provider, override=True)
        wanted = SandboxSpec(image=IMAGE, workdir=WORKDIR, ttl_s=lifetime_s)
        sandbox = AsyncSandbox({"swe_rollout": {"spec": spec}}, wanted)
        return cls(await sandbox.start(), folder)

    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran:
        result = await self.sandbox.exec(command, timeout_s=timeout_s, user=user)
        timed_out = result.error_type == "timeout"
        return Ran(result.return_code, result.stdout, result.stderr, timed_out=timed_out)

    async def put(self, path: str, data: bytes) -> None:
        self.file.write_bytes(data)
        await self.sandbox.upload(self.file, path)

    async def get(self, path: str) -> bytes:
        await self.sandbox.download(path, self.file)
        return self.file.read_bytes()

    async def close(self) -> None:
        await self.sandbox.stop()


class TestNemoGym(ProtocolContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(GymFace.open, local(tmp_path), tmp_path)

    async def test_status(self, face: GymFace) -> None:
        assert await face.sandbox.status() is SandboxStatus.RUNNING

    async def test_environment_and_files_of_the_spec(self, tmp_path: Path) -> None:
        provider = Provider(spec=local(tmp_path))
        spec = SandboxSpec(image=IMAGE, workdir=WORKDIR, env={"A": "1"}, files={"text": "é"})
        handle = await provider.create(spec)
        result = await provider.exec(handle, 'cat text; echo "$A$B"', env={"B": "2"})
        assert (result.stdout, result.return_code, result.error_type) == ("é12\n", 0, None)
        await provider.aclose()
        assert await provider.status(handle) is SandboxStatus.STOPPED
        await provider.close(handle)

    async def test_what_can_not_be_had_is_refused(self, tmp_path: Path) -> None:
        provider = Provider(spec=local(tmp_path))
        for spec in (
            SandboxSpec(),
            SandboxSpec(image="no/such:image"),
            SandboxSpec(image=IMAGE, ports=[80]),
            SandboxSpec(image=IMAGE, workdir=f"{WORKDIR}/none"),
        ):
            with pytest.raises(SandboxCreateError):
                await provider.create(spec)


def test_the_members_are_those_of_the_protocol() -> None:
    for name in ("create", "exec", "upload_file", "download_file", "status", "close", "aclose"):
        theirs = inspect.signature(getattr(SandboxProvider, name)).parameters
        assert list(inspect.signature(getattr(Provider, name)).parameters) == list(theirs)
    assert isinstance(create_provider({"swe_rollout": {}}), Provider)
