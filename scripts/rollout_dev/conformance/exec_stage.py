"""Set the scene of each case: a pod, a client that is bound to it, a proxy where it needs one.

Cases that break nothing share one pod for each client. All pods are started by our provider, so
that all clients have the same conditions.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from rollout_dev.conformance.exec_cases import Needs
from rollout_dev.conformance.exec_scene import Scene
from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import ClientTarget, Runner
from rollout_dev.exec_clients.catalog import Peer
from rollout_dev.exec_clients.site import Site, add_kubeconfig, open_site
from rollout_dev.faults.exec_proxy import ExecProxy
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session.session import Session

MEMORY = "128Mi"
"""Enough for a supervisor, little enough to exhaust quickly."""
_FIND_FOLDER = """\
for d in /tmp /var/tmp /dev/shm /run "$HOME"; do
    (: >"$d/.swe-rollout-probe") 2>/dev/null && rm "$d/.swe-rollout-probe" && echo "$d" && break
done
"""


@dataclass(frozen=True, slots=True)
class _SharedPod:
    """The pod that a client's harmless cases share."""

    pod: RunningPod
    control: Session


@dataclass(slots=True)
class Stage:
    """Makes scenes in one namespace."""

    site: Site
    image: str
    notes: list[str]
    _provider: PodProvider
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _shared: dict[str, _SharedPod] = field(default_factory=dict)

    async def scene(self, peer: Peer | None, needs: Needs, stack: AsyncExitStack) -> Scene:
        """Set a scene for one case; it ends with the stack."""
        proxy, context, config = None, self.site.context, str(self.site.kubeconfig)
        if needs is Needs.PROXY:
            proxy = await stack.enter_async_context(ExecProxy(self.site.client.transport.access))
            path = self.site.folder / f"proxied-{proxy.port}"
            context = proxy.write_kubeconfig(path, namespace=self.site.namespace)
            config = str(path)
            add_kubeconfig(path)
        is_alone = needs is Needs.OWN_POD or (peer is None and needs is Needs.PROXY)
        home = await (self._fresh(context, stack) if is_alone else self._shared_pod(peer))
        folder = (await home.control.exec(("/bin/sh", "-c", _FIND_FOLDER))).stdout.decode().strip()
        runner: Runner = ours.Ours(home.pod)
        if peer is not None:
            namespace, pod = self.site.namespace, home.pod.name
            runner = peer.bind(ClientTarget(config, context, namespace, pod, pod_spec.CONTAINER))
            stack.push_async_callback(runner.aclose)
        return Scene(
            runner=runner,
            is_ours=peer is None,
            site=self.site,
            pod=home.pod.name,
            folder=f"{folder}/case-{next(self._numbers)}",
            control=home.control,
            proxy=proxy,
        )

    async def _shared_pod(self, peer: Peer | None) -> _SharedPod:
        name = peer.name if peer else ""
        if name not in self._shared:
            self._shared[name] = await self._start(self._provider)
        return self._shared[name]

    async def _fresh(self, context: str, stack: AsyncExitStack) -> _SharedPod:
        provider = await stack.enter_async_context(
            ours.provider(self.site, context=context, memory=MEMORY)
        )
        home = await self._start(provider)
        stack.push_async_callback(home.control.close)
        return home

    async def _start(self, provider: PodProvider) -> _SharedPod:
        pod = await ours.start(provider, self.image, number=next(self._numbers))
        control = await ours.bare_session(self.site.client, self.site.namespace, pod.name)
        return _SharedPod(pod, control)

    async def aclose(self) -> None:
        """Close the sessions into the shared pods."""
        for home in self._shared.values():
            await home.control.close()


@asynccontextmanager
async def open_stage(kubeconfig: str | None, image: str) -> AsyncIterator[Stage]:
    """Open a stage in a namespace of its own, given the right to create one."""
    async with open_site(kubeconfig, prefix="conformance-exec-") as site:
        note = await ours.without_policy_if_forbidden(site)
        async with ours.provider(site, memory=MEMORY) as provider:
            stage = Stage(site, image, [note] if note else [], provider)
            try:
                yield stage
            finally:
                await stage.aclose()
