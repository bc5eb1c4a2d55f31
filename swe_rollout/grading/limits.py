"""Whose fault it is that a grading sandbox was ended by what ran in it.

A patch's tests that exceed the sandbox's memory say something about the patch only where the tests
alone stay within it. So they are run once more, over the gold patch, or over the untouched base
where the task has none: what that shows holds for the instance and is measured once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from swe_rollout.errors import GraderError, SandboxDestroyedError
from swe_rollout.grading.proof import RunTests
from swe_rollout.types.instance import Instance

_MOST_KEPT = 1 << 12
CONTROL_PART = 100
"""Numbers the sandbox of the control run, beyond those of proofs."""


class Controls:
    """Which instances' tests stay within the limits of a sandbox. Safe for concurrent use."""

    def __init__(self) -> None:
        """Know none."""
        self._within: OrderedDict[str, None] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def require_within(self, instance: Instance, run: RunTests, evidence: str) -> None:
        """Return if an instance's tests stay within the limits without the patch that exceeds them.

        `evidence` says how that did. Raises GraderError where they exceed them anyway.
        """
        key = f"{instance.instance_id}-{instance.digest}"
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self._within:
                    await _measure(instance, run, evidence)
                    self._within[key] = None
                    if len(self._within) > _MOST_KEPT:
                        self._within.popitem(last=False)
        finally:
            if not lock.locked():
                self._locks.pop(key, None)


async def _measure(instance: Instance, run: RunTests, evidence: str) -> None:
    try:
        why = (await run(instance.gold_patch, part=CONTROL_PART)).broke_off
    except SandboxDestroyedError as error:
        why = str(error)
    if why:
        what = "gold patch" if instance.gold_patch.strip() else "untouched base"
        raise too_large(instance, f"with the {what}: {why}; with the patch: {evidence}")


def too_large(instance: Instance, why: str) -> GraderError:
    """Return the error for an instance whose tests alone exceed the limits of a sandbox."""
    return GraderError(
        f"the tests of {instance.instance_id} do not fit into the grading sandbox",
        why=why,
        fix="give sandboxes more memory and disk, or leave the instance out",
        retryable=False,
    )
