"""Our own sandboxes as runners, with or without the right to create a NetworkPolicy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rollout_dev.exec_clients.base import CommandResult, Site
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget, open_exec
from swe_rollout.cluster.objects import Json
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.pods import isolation, pod_spec
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session.bootstrap import install_command
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import PodSandbox, Resources, WarmPods
from swe_rollout.types.episode import EpisodeId

NAME = "swe-rollout"
_JOB = "exec"
_MEMORY = "256Mi"
_AT_ONCE = 16
"""The most pods that start at the same time."""


@dataclass(frozen=True, slots=True)
class Ours:
    """A sandbox as a `Runner`."""

    sandbox: Sandbox | Session
    max_output: int = MAX_OUTPUT_BYTES

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        found = await self.sandbox.exec(
            list(argv), stdin=stdin, timeout_s=timeout_s, max_output=self.max_output
        )
        return CommandResult(
            found.exit_code,
            found.stdout,
            found.stderr,
            timed_out=found.timed_out,
            stdout_bytes=found.stdout_bytes,
        )

    async def aclose(self) -> None:
        """Do nothing: the provider closes the sandbox."""


@asynccontextmanager
async def provider(
    site: Site, *, context: str | None = None, memory: str = _MEMORY, warm: int = 0
) -> AsyncIterator[PodProvider]:
    """Open a provider of small pods in the site's namespace, by `context`; `warm` pods may wait."""
    spec = _spec(memory).model_copy(
        update={
            "context": context or site.context,
            "namespace": site.namespace,
            "warm": WarmPods(cap=warm, per_image=max(warm, 1)),
        }
    )
    made = PodProvider(spec, job=_JOB)
    try:
        yield made
    finally:
        await made.aclose()


async def start(provider: PodProvider, image: str, *, number: int = 0) -> RunningPod:
    """Start a sandbox of `image`; `number` is unique on the site."""
    return await provider.start(request(image, number))


def manifest(image: str, *, name: str, run: str) -> Json:
    """Build the manifest of a sandbox's pod, to create it without a provider."""
    owner = pod_spec.RunIdentity(run=run, started="")
    made = pod_spec.pod_manifest(request(image, 0), _spec(_MEMORY), owner)
    return {**made, "metadata": {**made["metadata"], "name": name}}


def request(image: str, number: int) -> SandboxRequest:
    """Build the request that `start` sends."""
    return SandboxRequest(
        episode=EpisodeId(_JOB, "one__one-1", number),
        role=Role.AGENT,
        image=image,
        workdir="/",
        deadline_s=3600.0,
    )


def _spec(memory: str) -> PodSandbox:
    return PodSandbox(
        resources=Resources(cpu="10m", memory=memory, ephemeral_storage="64Mi"),
        start_seconds=120.0,
    )


async def start_many(provider: PodProvider, image: str, count: int) -> list[RunningPod]:
    """Start `count` sandboxes."""
    few = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> RunningPod:
        async with few:
            return await start(provider, image, number=number)

    return list(await asyncio.gather(*(one(number) for number in range(count))))


async def bare_session(client: ClusterClient, namespace: str, name: str) -> Session:
    """Open a second session in a running pod, with its own supervisor and no reconnecting."""
    target = ExecTarget(namespace, name, pod_spec.CONTAINER)
    stream = await open_exec(client, target, install_command(folder="/var/tmp"))  # noqa: S108
    return await Session.open(stream, workdir="/")


async def without_policy_if_forbidden(site: Site) -> str:
    """Skip the NetworkPolicy if it may not be created; return a note that says so, or "".

    Only our own commands run here: a cluster whose owner only allows us pods is enough to judge
    exec.
    """
    if await site.client.is_allowed(
        "create", "networkpolicies", site.namespace, group="networking.k8s.io"
    ):
        return ""

    async def nothing(client: ClusterClient, namespace: str) -> None:
        del client, namespace

    isolation.ensure_isolation = nothing  # Sandboxes themselves never do without it.
    return "no right to create a NetworkPolicy: the pods of this run were not isolated"
