"""Carry out one attack at a site and judge how it ended."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from rollout_dev.conformance.attacks.attack import Attack, DiffAttack, PatchAttack
from rollout_dev.conformance.attacks.sites import Site
from rollout_dev.conformance.attacks.stalls import CALM_S, Stalls
from swe_rollout.errors import GraderError, SandboxError
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.verdict import VerdictStatus

_DIFF_S: Final = 60.0
_SETUP = "git config user.email a@localhost; git config user.name a; echo honest >honest.txt\n"


@dataclass(frozen=True, slots=True)
class Trial:
    """How an attack ended."""

    outcome: str
    """What was seen, in a few words."""
    held: bool
    stall_s: float
    """The longest that the controller's event loop stood still."""
    took_s: float


async def script_trial(site: Site, attack: Attack) -> Trial:
    """Run the script of an attack; afterwards the sandbox has to work, and to end."""

    async def act() -> tuple[str, bool]:
        sandbox = await site.start()
        try:
            result = await sandbox.exec(attack.script, timeout_s=attack.seconds)
            output = (result.stdout + result.stderr).decode("utf-8", "replace")
            after = await sandbox.exec("echo well", timeout_s=20.0)
        finally:
            await sandbox.close()
        if found := re.search(r"^BREACH.*$", output, re.MULTILINE):
            return found[0][:200], False
        if re.search(attack.held, output, re.MULTILINE) is None:
            return f"not tried: {output[-200:]!r}", False
        if after.stdout != b"well\n":
            return f"the sandbox then printed {after.stdout[-100:]!r}", False
        return "held", True

    return await _watched(act())


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

    return await _watched(act())


async def patch_trial(site: Site, attack: PatchAttack) -> Trial:
    """Make a patch that breaks nothing and fixes nothing, with an attack in it, and grade it."""

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

    return await _watched(act())


async def _attacking_patch(sandbox: Sandbox, site: Site, code: str) -> repository.Patch:
    base = await repository.prepare(sandbox, site.instance)
    found = await sandbox.exec("find . -name __init__.py -not -path '*/test*' | head -n 1")
    path = found.stdout.decode().strip()
    text = await sandbox.read_file(path)
    # Behind `from __future__` imports, which have to come first.
    await sandbox.write_file(path, text + b"\n\n" + code.encode())
    return await repository.diff(sandbox, base)


async def _watched(act: Awaitable[tuple[str, bool]]) -> Trial:
    """Run an attack while the event loop is measured."""
    stalls = Stalls()
    beating = asyncio.create_task(stalls.watch())
    began = time.monotonic()
    try:
        outcome, held = await act
    except (SandboxError, GraderError) as error:
        # An attack that ends its sandbox, or gets no verdict, has dodged its grade.
        outcome, held = f"lost: {error}"[:200], False
    finally:
        beating.cancel()
    if stalls.longest_s > CALM_S:
        outcome, held = f"the controller stood still for {stalls.longest_s:.1f} s", False
    return Trial(outcome, held, stalls.longest_s, time.monotonic() - began)
