"""The sandbox contract over the real kodo, its Kubernetes backend on a real cluster."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from cluster.needs import CLUSTER
from cluster.site import kubectl
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.kodo.provider import INSTALL, KodoProvider
from swe_rollout.spec.sandbox import KodoSandbox, Resources
from swe_rollout.testing.sandbox_contract import SandboxContract
from swe_rollout.types.episode import EpisodeId

pytestmark = [
    *CLUSTER,
    # kodo leaves its connections open.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(importlib.util.find_spec("kodo") is None, reason=f"needs `{INSTALL}`"),
]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REQUEST = SandboxRequest(
    episode=EpisodeId("test-kodo", "one", 0),
    role=Role.AGENT,
    image="swe-rollout/sandbox-base:local",
    workdir="/root",
    deadline_s=600.0,
)


@pytest.fixture
async def provider(modules_namespace: str) -> AsyncIterator[KodoProvider]:
    small = Resources(cpu="50m", memory="256Mi", ephemeral_storage="256Mi")
    spec = KodoSandbox(namespace=modules_namespace, resources=small, path=PATH, start_seconds=30.0)
    provider = KodoProvider(spec)
    yield provider
    await provider.aclose()


class _Kodo(SandboxContract):
    image = REQUEST.image

    @pytest.fixture
    async def sandbox(self, provider: KodoProvider) -> AsyncIterator[Sandbox]:
        sandbox = await provider.start(replace(REQUEST, image=self.image))
        yield sandbox
        await sandbox.close()


class TestSandboxBase(_Kodo):
    has_bash = True


class TestBusybox(_Kodo):
    image = "swe-rollout/busybox:local"
    delivers_interrupt = False


async def test_pods_are_gone_when_their_sandboxes_are_closed(
    provider: KodoProvider, modules_namespace: str
) -> None:
    sandboxes = await asyncio.gather(*(provider.start(REQUEST) for _ in range(3)))
    results = await asyncio.gather(*(sandbox.exec("hostname") for sandbox in sandboxes))
    assert len({result.stdout for result in results}) == 3
    await sandboxes[0].close()
    await provider.aclose()
    left = kubectl("get", "pods", "-n", modules_namespace, "-o", "name")
    assert [name for name in left.split() if "902860" in name] == []


async def test_a_pod_that_is_deleted_is_an_error(
    provider: KodoProvider, modules_namespace: str
) -> None:
    sandbox = await provider.start(REQUEST)
    name = (await sandbox.exec("hostname")).stdout.decode().strip()
    kubectl("delete", "pod", name, "-n", modules_namespace, "--force", "--grace-period=0")
    with pytest.raises(SandboxError):
        await asyncio.wait_for(sandbox.exec("echo x; sleep 60"), 60)


async def test_a_missing_image_is_an_error(modules_namespace: str) -> None:
    spec = KodoSandbox(namespace=modules_namespace, start_seconds=5.0)
    provider = KodoProvider(spec)
    with pytest.raises(SandboxError):
        await provider.start(replace(REQUEST, image="swe-rollout/no-such:1"))
    await provider.aclose()
    assert "no-such" not in kubectl("get", "pods", "-n", modules_namespace, "-o", "yaml")
