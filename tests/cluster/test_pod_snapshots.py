"""Snapshots of pods, and their restoration in other pods of the same image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from cluster.needs import BASE, BUSYBOX, CLUSTER
from cluster.pods import pods, provided, request, until
from swe_rollout.sandbox.base import Sandbox, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import WarmPods
from swe_rollout.testing.sandbox_snapshot_contract import SnapshotContract, SnapshotSandbox, Start

pytestmark = CLUSTER

_SPEC = pods(memory="512Mi", disk="512Mi")


def _request(image: str) -> SandboxRequest:
    return request(image, snapshots=True)


class _Pods(SnapshotContract):
    image: ClassVar[str]

    @pytest.fixture
    async def provider(self) -> AsyncIterator[PodProvider]:
        async with provided(_SPEC) as provider:
            yield provider

    @pytest.fixture
    def start(self, provider: PodProvider) -> Start:
        async def started() -> Sandbox:
            return await provider.start(_request(self.image))

        return started


class TestBusybox(_Pods):
    image = BUSYBOX


class TestSandboxBase(_Pods):
    image = BASE

    async def test_a_folder_outside_of_any_volume_is_restored(self, start: Start) -> None:
        source, target = await start(), await start()
        assert isinstance(source, SnapshotSandbox)
        assert isinstance(target, SnapshotSandbox)
        await source.exec("mkdir -p /opt/new; echo x >/opt/new/x; rm -rf /usr/share/doc; : >/etc/a")
        await target.apply(await source.changes())
        result = await target.exec("cat /opt/new/x; ls -d /usr/share/doc /etc/a")
        assert result.stdout == b"x\n/etc/a\n"


async def test_a_warm_pod_recorded_its_files_before() -> None:
    spec = _SPEC.model_copy(update={"warm": WarmPods(cap=1, per_image=1)})
    async with provided(spec) as provider:
        await provider.delete_orphans(())  # opens it
        wanted = _request(BUSYBOX)
        provider.prewarm([wanted])
        await until(lambda: provider.warm > 0, within_s=60)
        warm = await provider.start(wanted)
        assert not await warm.changes()
        await warm.write_file("/opt/file", b"1")
        assert (await warm.changes()).files >= 1
