"""Carry out one attack at a site and judge its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from rollout_dev.conformance.attacks.attack import Attack, DiffAttack, PatchAttack
from rollout_dev.exec_clients.base import open_site
from swe_rollout.datasets import release_pairs
from swe_rollout.errors import GraderError, SandboxError
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.spec.sandbox import LocalSandbox, PodSandbox, Resources
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import VerdictStatus

CALM_S: Final = 1.0
"""Maximum stall of the controller's event loop in seconds."""
BEAT_S: Final = 0.02
_BLOCKED_S: Final = 5.0
"""A longer stall counts as blocked, however much processor time the process used."""


class Stalls:
    """The longest stall of the loop of `watch` so far.

    A late beat counts only the processor time that this process used meanwhile: on a busy machine,
    others had the core, or the GIL, for the rest.
    """

    longest_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(BEAT_S)
            late_s = time.monotonic() - began - BEAT_S
            own_s = late_s if late_s > _BLOCKED_S else time.process_time() - used
            self.longest_s = max(self.longest_s, min(late_s, own_s))


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
        """Return the address of a new episode."""
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
    async with open_site(kubeconfig, prefix="attacks-", images=(instance.image,)) as site:
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


_DIFF_S: Final = 60.0
_SETUP = "git config user.email a@localhost; git config user.name a; echo honest >honest.txt\n"


@dataclass(frozen=True, slots=True)
class Trial:
    """How an attack ended."""

    outcome: str
    """The outcome in a few words."""
    held: bool
    stall_s: float
    """The longest that the controller's event loop stood still."""
    took_s: float


async def script_trial(site: Site, attack: Attack) -> Trial:
    """Run the script of an attack; afterwards the sandbox must still work, and end."""

    async def act() -> tuple[str, bool]:
        sandbox = await site.start()
        try:
            result = await sandbox.exec(attack.script, timeout_s=attack.seconds)
            output = (result.stdout + result.stderr).decode("utf-8", "replace")
            after = await sandbox.exec("echo well", timeout_s=20.0)
        finally:
            await sandbox.close()
        if problem := attack.problem(output):
            return problem, False
        if after.stdout != b"well\n":
            return f"the sandbox then printed {after.stdout[-100:]!r}", False
        return "held", True

    return await watched(act())


async def diff_trial(site: Site, attack: DiffAttack) -> Trial:
    """Leave a tree behind and take its diff."""

    async def act() -> tuple[str, bool]:
        sandbox = await site.start()
        try:
            base = await repository.prepare(sandbox, site.instance)
            await sandbox.exec(_SETUP + attack.script, timeout_s=30.0)
            began = time.monotonic()
            patch = await repository.diff(sandbox, base)
            took_s = time.monotonic() - began
        finally:
            await sandbox.close()
        if took_s > _DIFF_S:
            return f"the diff took {took_s:.0f} s", False
        if patch.usable is not attack.usable:
            return f"the diff: {patch.problem or patch.text[:100]!r}", False
        if patch.usable and "+++ b/honest.txt" not in patch.text:
            return f"the honest edit is missing: {patch.text[:100]!r}", False
        return f"held: {patch.problem[:80] or 'a patch'} in {took_s:.1f} s", True

    return await watched(act())


async def patch_trial(site: Site, attack: PatchAttack) -> Trial:
    """Grade a patch that contains an attack but neither breaks nor fixes anything."""

    async def act() -> tuple[str, bool]:
        expected = site.instance.expected
        log = "\n" + "".join(
            f"PASSED {test}\n" for test in (*expected.fail_to_pass, *expected.pass_to_pass)
        )
        sandbox = await site.start()
        try:
            patch = await _attacking_patch(sandbox, site, attack.module(log))
        finally:
            await sandbox.close()
        grader = Grader(site.provider, timeout_s=60.0)
        verdict = await grader.grade(site.instance, patch, episode=site.episode())
        findings = f"; {'; '.join(verdict.integrity)}" if verdict.integrity else ""
        held = verdict.status is not VerdictStatus.RESOLVED
        return f"{'held: ' if held else ''}{verdict.status.value}{findings}"[:300], held

    return await watched(act())


async def _attacking_patch(sandbox: Sandbox, site: Site, code: str) -> repository.Patch:
    base = await repository.prepare(sandbox, site.instance)
    found = await sandbox.exec("find . -name __init__.py -not -path '*/test*' | head -n 1")
    path = found.stdout.decode().strip()
    text = await sandbox.read_file(path)
    # After `from __future__` imports, which must come first.
    await sandbox.write_file(path, text + b"\n\n" + code.encode())
    return await repository.diff(sandbox, base)


async def watched(act: Awaitable[tuple[str, bool]]) -> Trial:
    """Run an attack while the event loop is monitored."""
    stalls = Stalls()
    beating = asyncio.create_task(stalls.watch())
    began = time.monotonic()
    try:
        outcome, held = await act
    except (SandboxError, GraderError) as error:
        # An attack that ends its sandbox, or gets no verdict, has evaded grading.
        outcome, held = f"lost: {error}"[:200], False
    finally:
        beating.cancel()
    if stalls.longest_s > CALM_S:
        outcome, held = f"the controller stood still for {stalls.longest_s:.1f} s", False
    return Trial(outcome, held, stalls.longest_s, time.monotonic() - began)
