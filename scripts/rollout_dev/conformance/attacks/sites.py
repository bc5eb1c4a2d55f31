"""Where attacks are carried out: sandboxes on this machine, or pods of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from rollout_dev.exec_clients.site import open_site
from swe_rollout.datasets import release_pairs
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import LocalSandbox, PodSandbox, Resources
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance

_PROJECT: Final = "semver"
_JOB: Final = "attacks"


@dataclass(slots=True)
class Site:
    """A provider of sandboxes, and a task whose image it can start."""

    name: str
    provider: SandboxProvider
    instance: Instance
    _number: int = 0

    def episode(self) -> EpisodeId:
        """Return the address of an episode that none before had."""
        self._number += 1
        return EpisodeId(_JOB, self.instance.instance_id, self._number)

    async def start(self) -> Sandbox:
        """Start a sandbox for an agent."""
        instance = self.instance
        request = SandboxRequest(self.episode(), Role.AGENT, instance.image, instance.workdir)
        return await self.provider.start(request)


@asynccontextmanager
async def local_site() -> AsyncIterator[Site]:
    """Open the sandboxes of this machine."""
    provider = LocalProvider(LocalSandbox())
    try:
        yield Site("local", provider, await _instance())
    finally:
        await provider.aclose()


@asynccontextmanager
async def pod_site(kubeconfig: str) -> AsyncIterator[Site]:
    """Open pods of a cluster that has the images of `scripts/build-images --load`."""
    instance = await _instance()
    async with open_site(kubeconfig, prefix="attacks-") as site:
        resources = Resources(cpu="50m", memory="1Gi", ephemeral_storage="2Gi")
        provider = PodProvider(
            PodSandbox(namespace=site.namespace, resources=resources, start_seconds=120.0),
            job=_JOB,
        )
        try:
            yield Site("pods", provider, instance)
        finally:
            await provider.aclose()


async def _instance() -> Instance:
    (instance,) = await release_pairs.load([_PROJECT], on_progress=lambda _: None)
    return instance
