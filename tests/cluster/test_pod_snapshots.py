"""Snapshots of pods, and their restoration in other pods of the same image."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from cluster.namespaces import until
from cluster.needs import BASE, BUSYBOX, CLUSTER, KUBECONFIG
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import PodSandbox, Resources, WarmPods
from swe_rollout.testing.sandbox_snapshot_contract import SnapshotContract, SnapshotSandbox, Start
from swe_rollout.types.episode import EpisodeId

pytestmark = CLUSTER

_JOB = "test-pod-snapshots"
_SAMPLES = itertools.count()
_SPEC = PodSandbox(
    namespace="default",
    resources=Resources(cpu="50m", memory="512Mi", ephemeral_storage="512Mi"),
)


def _request(image: str) -> SandboxRequest:
    episode = EpisodeId(_JOB, "one__one-1", next(_SAMPLES))
    return SandboxRequest(episode, Role.AGENT, image, "/root", deadline_s=600.0, snapshots=True)


class _Pods(SnapshotContract):
    image: ClassVar[str]

    @pytest.fixture
    async def provider(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PodProvider]:
        monkeypatch.setenv("KUBECONFIG", KUBECONFIG)
        provider = PodProvider(_SPEC, job=_JOB)
        yield provider
        await provider.aclose()

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


async def test_a_warm_pod_recorded_its_files_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", KUBECONFIG)
    spec = _SPEC.model_copy(update={"warm": WarmPods(cap=1, per_image=1)})
    provider = PodProvider(spec, job=_JOB)
    await provider.delete_orphans(())  # opens it
    wanted = _request(BUSYBOX)
    provider.prewarm([wanted])

    async def is_warm() -> bool:
        return provider.warm > 0

    await until(is_warm, within_s=60)
    warm = await provider.start(wanted)
    assert not await warm.changes()
    await warm.write_file("/opt/file", b"1")
    assert (await warm.changes()).files >= 1
    await provider.aclose()
