"""What the gold patch of a task shows when it is graded, and what a patch has to show alike.

Measured once for each task and process. Used by `grader` and, through it, by `validate`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from swe_rollout.grading import junit
from swe_rollout.grading.run import RunResult
from swe_rollout.grading.twins import Gold, Shown, Twin, make_twins
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestStatus, VerdictStatus

_MOST_KEPT: Final = 1000
_FIRST_PART: Final = 1
TWIN_PARTS: Final = 4
"""Sandboxes before these are the patch's own, and those of the gold patch."""
_SHOWN: Final = 3


class RunTests(Protocol):
    """Runs an instance's tests over a patch in a sandbox of its own."""

    async def __call__(
        self, patch: str, *, part: int, twin: Twin | None = None, reads_tests: bool = False
    ) -> RunResult:
        """Run them; `part` numbers the sandbox."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """What the gold patch showed."""

    problem: str = ""
    """Why nothing is known; empty when the gold patch resolves the task."""
    statuses: Mapping[str, TestStatus] = field(default_factory=dict)
    """Of the expected tests."""
    contradictions: frozenset[str] = frozenset()
    reported: frozenset[str] = frozenset()
    """Tests whose passing the runner's own report confirms."""
    twins: tuple[Gold, ...] = ()
    """Those that tell something."""

    @property
    def telling(self) -> frozenset[str]:
        """Tests that some twin watches."""
        return frozenset[str]().union(*(twin.telling for twin in self.twins))


class Proofs:
    """The proofs of instances, each measured when it is first asked for."""

    def __init__(self) -> None:
        """Know none."""
        self._known: OrderedDict[str, Proof] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def of(self, instance: Instance, run: RunTests) -> Proof:
        """Return the proof of an instance, measured by `run` where it is not known yet."""
        key = f"{instance.instance_id}-{instance.digest}"
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self._known:
                    self._known[key] = await _measured(instance, run)
                    if len(self._known) > _MOST_KEPT:
                        self._known.popitem(last=False)
                return self._known[key]
        finally:
            if not lock.locked():
                self._locks.pop(key, None)


async def _measured(instance: Instance, run: RunTests) -> Proof:
    if not instance.gold_patch.strip():
        return Proof(problem="the task has no gold patch")
    result = await run(instance.gold_patch, part=_FIRST_PART, reads_tests=True)
    if result.status is not VerdictStatus.RESOLVED:
        return Proof(problem=f"the gold patch is {result.status.value} here")
    statuses = result.report.fail_to_pass | result.report.pass_to_pass
    script = instance.evaluation.script
    twins = []
    if script is None or instance.test_patch in script:
        # Parsing and editing takes a moment for large files.
        made = await asyncio.to_thread(
            make_twins, result.test_files, instance.expected, instance.digest
        )
        for part, twin in enumerate(made, start=_FIRST_PART + 1):
            seen = await run(instance.gold_patch, part=part, twin=twin)
            twins.append(Gold(twin, shown(twin, seen)))
    cases = result.cases or {}
    passed = [test for test, status in statuses.items() if status is TestStatus.PASSED]
    unconfirmed = junit.disagreements(result.statuses, cases, passed)
    return Proof(
        statuses=statuses,
        contradictions=result.contradictions,
        reported=frozenset(passed) - frozenset(unconfirmed),
        twins=tuple(gold for gold in twins if gold.telling),
    )


def shown(twin: Twin, result: RunResult) -> dict[str, Shown]:
    """Return what a run of a twin shows for each expected test."""
    statuses = result.report.fail_to_pass | result.report.pass_to_pass
    failures = result.failures(statuses)
    return {test: Shown(status, twin.traits(failures[test])) for test, status in statuses.items()}


def suspicions(result: RunResult, proof: Proof) -> Iterator[str]:
    """Yield how a run that resolves the task differs from what the gold patch shows."""
    statuses = result.report.fail_to_pass | result.report.pass_to_pass
    yield from _unlike(statuses, proof)
    for test in sorted(result.contradictions - proof.contradictions):
        yield f"{test} is reported both as passed and as failed"
    if result.cases is not None and proof.reported:
        passed = [test for test in statuses if test in proof.reported]
        unconfirmed = junit.disagreements(result.statuses, result.cases, passed)
        for test in unconfirmed[:_SHOWN]:
            yield f"{test} passes in the log and not in the report of the test runner"


def _unlike(statuses: Mapping[str, TestStatus], proof: Proof) -> Iterator[str]:
    """Yield tests that fail as somebody expects; the fix makes them pass."""
    for test, status in statuses.items():
        was = proof.statuses.get(test)
        if status is TestStatus.XFAIL and was is not TestStatus.XFAIL:
            yield f"{test} is reported as XFAIL; {_expected(was)}"


def _expected(status: TestStatus | None) -> str:
    return f"under the gold patch it is {status.value}" if status else "it should pass"
