"""Snapshots of sandboxes on this machine: in namespaces, and in a plain directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest, Snapshots
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.testing.sandbox_snapshot_contract import SnapshotContract, Start
from swe_rollout.types.episode import EpisodeId
from tree_images import make_tree_image

_REQUEST = SandboxRequest(
    episode=EpisodeId(job="contract", instance="one", sample=0),
    role=Role.AGENT,
    image="contract:1",
    workdir="/testbed",
    snapshots=True,
)


class _Local(SnapshotContract):
    isolation: ClassVar[Literal["bubblewrap", "none"]]

    @pytest.fixture
    async def provider(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[LocalProvider]:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        names = ("a", "sub/x", "sub/deep/er", "sub/deep/other")
        files = {name: f"{name} of the image" for name in names}
        make_tree_image(_REQUEST.image, tmp_path / "images", files)
        provider = LocalProvider(
            LocalSandbox(images=str(tmp_path / "images"), isolation=self.isolation)
        )
        yield provider
        await provider.aclose()

    @pytest.fixture
    def start(self, provider: LocalProvider) -> Start:
        async def started() -> Sandbox:
            return await provider.start(_REQUEST)

        return started

    async def test_without_the_request_there_are_none(self, provider: LocalProvider) -> None:
        sandbox = await provider.start(replace(_REQUEST, snapshots=False))
        assert isinstance(sandbox, Snapshots)
        with pytest.raises(SandboxError) as caught:
            await sandbox.changes()
        assert "snapshots=True" in caught.value.fix


@pytest.mark.skipif(bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`")
class TestBubblewrap(_Local):
    isolation = "bubblewrap"

    async def test_commands_that_kill_everything_cost_no_sandbox(
        self, provider: LocalProvider
    ) -> None:
        sandbox = await provider.start(_REQUEST)
        await sandbox.write_file("file", b"1")
        await sandbox.exec("(while :; do kill -KILL -1; done) >/dev/null 2>&1 &")
        for _ in range(5):
            delta = await sandbox.changes()
            # A walk that survives after the first one finds nothing new.
            assert delta or delta.number > 1 or delta.unsaved[0].startswith("/: ")
        await sandbox.end_processes()
        assert (await sandbox.changes(since=0) if delta.number == 0 else delta).number >= 1

    async def test_a_file_that_can_not_be_read_is_reported(self, provider: LocalProvider) -> None:
        sandbox = await provider.start(_REQUEST)
        await sandbox.exec("echo x >file; echo y >other; chmod 0 file sub")
        delta = await sandbox.changes()
        assert sorted(delta.unsaved) == [
            "/testbed/file: Permission denied",
            "/testbed/sub: Permission denied",
        ]


class TestPlainDirectory(_Local):
    isolation = "none"
    sees_processes = False
