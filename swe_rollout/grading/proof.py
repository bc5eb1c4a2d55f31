"""Measure what a task's gold patch shows when it is graded; other patches must show the same.

Measurements are made once per task and process. Used by `grader` and, through it, by `validate`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import structlog

from swe_rollout.errors import GraderError, SandboxDestroyedError, TaskError
from swe_rollout.grading import junit
from swe_rollout.grading.blind import Blind, Expectation, make_blind
from swe_rollout.grading.odds import PROVEN, shown
from swe_rollout.grading.run import RunResult
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestStatus, VerdictStatus

T = TypeVar("T")
log = structlog.get_logger()
BLIND_PART: Final = 9
"""The number of the sandbox of a patch's blind run; lower ones belong to the gold patch."""
_ROUNDS: Final = 4
"""After so many blind runs of the gold patch, what still differs keeps no hole."""
CONTROL_PART: Final = 100
"""The number of the control run's sandbox, above those of proofs."""
_SHOWN: Final = 3


class RunTests(Protocol):
    """Runs an instance's tests against a patch in a sandbox of its own."""

    async def __call__(
        self, patch: str, *, part: int, blind: Blind | None = None, reads_tests: bool = False
    ) -> RunResult:
        """Run them; `part` numbers the sandbox."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """What the gold patch showed."""

    problem: str = ""
    """Why the gold patch proves nothing; empty when it resolves the task."""
    statuses: Mapping[str, TestStatus] = field(default_factory=dict)
    """The status of each expected test."""
    contradictions: frozenset[str] = frozenset()
    reported: frozenset[str] = frozenset()
    """Tests that pass according to the runner's own report, too."""
    blind: Expectation = field(default_factory=lambda: Expectation(Blind({})))
    """What a blind run has to show."""

    @property
    def unproven(self) -> str:
        """Why a patch that resolves the task may have forged that; empty if it can't have."""
        if self.problem or self.blind.odds <= PROVEN:
            return self.problem
        if not self.blind.blind.holes:
            return "no test to fix compares a value that could be taken out of it"
        return f"what its tests expect can be guessed: {shown(self.blind.odds)}"


class OncePerInstance(Generic[T]):
    """Cache one measured value per instance. Safe for concurrent use.

    Only the newest values are kept; a measurement that raises is repeated when next needed.
    """

    def __init__(self, *, most_kept: int = 1000) -> None:
        """Start empty."""
        self._known: OrderedDict[str, T] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        self._most_kept = most_kept

    async def of(self, instance: Instance, measure: Callable[[], Awaitable[T]]) -> T:
        """Return the value of an instance; measure it if it is not known yet."""
        key = f"{instance.instance_id}-{instance.digest}"
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self._known:
                    self._known[key] = await measure()
                    if len(self._known) > self._most_kept:
                        self._known.popitem(last=False)
                return self._known[key]
        finally:
            if not lock.locked():
                self._locks.pop(key, None)


async def prove(instance: Instance, run: RunTests) -> Proof:
    """Measure what the gold patch of an instance shows."""
    if not instance.gold_patch.strip():
        return Proof(problem="the task has no gold patch")
    parts = itertools.count(1)
    run_gold = partial(run, instance.gold_patch, reads_tests=True)
    result = await run_gold(part=next(parts))
    if result.status is not VerdictStatus.RESOLVED:
        # What a busy machine did once, it hardly does twice.
        result = await run_gold(part=next(parts))
    _require_tests(instance, result)
    if result.status is not VerdictStatus.RESOLVED:
        return Proof(problem=f"the gold patch is {result.status.value} here")
    statuses = result.report.fail_to_pass | result.report.pass_to_pass
    cases = result.cases or {}
    passed = [test for test, status in statuses.items() if status is TestStatus.PASSED]
    unconfirmed = junit.disagreements(result.statuses, cases, passed)
    return Proof(
        statuses=statuses,
        contradictions=result.contradictions,
        reported=frozenset(passed) - frozenset(unconfirmed),
        blind=await _prove_blind(instance, run, result, parts),
    )


async def _prove_blind(
    instance: Instance, run: RunTests, result: RunResult, parts: Iterator[int]
) -> Expectation:
    """Find out which expected values can be taken out of the tests, by running the gold patch."""
    script = instance.evaluation.script
    if script is not None and instance.test_patch not in script:
        return Expectation(Blind({}))
    # Parsing and editing takes a moment for large files.
    blind = await asyncio.to_thread(
        make_blind, result.test_files, instance.expected, instance.digest
    )
    try:
        return await _confirm(instance, run, blind, parts)
    except TaskError as error:
        # The task's own tests can't be edited so: it is unproven, and can still be graded.
        log.warning("no_blind_run", instance=instance.instance_id, why=str(error))
        return Expectation(Blind({}))


async def _confirm(
    instance: Instance, run: RunTests, blind: Blind, parts: Iterator[int]
) -> Expectation:
    telling = frozenset(blind.holes)
    for number in itertools.count(1):
        if not blind.files:
            return Expectation(blind)
        gold = await run(instance.gold_patch, part=next(parts), blind=blind)
        _require_tests(instance, gold)
        shown = await asyncio.to_thread(gold.read_blind)
        filled = blind.filled(shown)
        if number == 1 and blind.holes:
            base = await run("", part=next(parts), blind=blind)
            telling = filled.telling(await asyncio.to_thread(base.read_blind))
        confirmed = filled.confirmed(
            shown, telling if number < _ROUNDS else frozenset(), salvages=number < _ROUNDS - 1
        )
        if confirmed == blind:
            break
        blind = confirmed
    return Expectation.of(blind, shown, instance, telling)


def _require_tests(instance: Instance, result: RunResult) -> None:
    """Raise GraderError if a run of the gold patch says nothing about the task.

    What is never believed is also never kept: the next patch asks again.
    """
    if result.broke_off or result.status is VerdictStatus.TESTS_TIMED_OUT:
        raise GraderError(
            f"the tests of {instance.instance_id} could not be run with its gold patch",
            why=result.broke_off or f"they did not end within {result.duration_s:.0f} s",
            fix="give grading sandboxes more CPU and memory, or the tests more time: "
            "spec.grading.timeoutSeconds",
        )


def suspicions(result: RunResult, proof: Proof) -> Iterator[str]:
    """Yield each way in which a run that resolves the task differs from the gold patch's run."""
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
    """Yield tests that fail as expected (xfail) although the gold patch makes them pass."""
    for test, status in statuses.items():
        was = proof.statuses.get(test)
        if status is TestStatus.XFAIL and was is not TestStatus.XFAIL:
            yield f"{test} is reported as XFAIL; {_expected(was)}"


def _expected(status: TestStatus | None) -> str:
    return f"under the gold patch it is {status.value}" if status else "it should pass"


async def require_within(instance: Instance, run: RunTests, evidence: str) -> None:
    """Check that an instance's tests stay within a sandbox's limits without the patch.

    Only then can a patch be blamed for tests that exceed the sandbox's memory. The tests are run
    against the gold patch, or against the untouched base if the task has none.
    `evidence` says how they exceeded the limits with the patch. Raises GraderError otherwise.
    """
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
