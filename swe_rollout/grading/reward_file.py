"""Grade by the rule `reward_file`: the task's tests write their reward into a file, as Harbor's do.

The agent's changes are repeated in a clean sandbox; only then are the tests added and run. The file
is read when no process is left, and believed only if it holds finite numbers.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from swe_rollout.errors import TaskError
from swe_rollout.grading import rules
from swe_rollout.grading.program import program
from swe_rollout.grading.rewards import RewardInput
from swe_rollout.grading.steering import Task
from swe_rollout.sandbox import delta, folders
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.sandbox.patch_text import touched_paths
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus

REWARD = "reward"
RESOLVED_AT = 1.0
_FOLDER = f"{folders.LOGS}/verifier"
_FILES = (f"{_FOLDER}/reward.json", f"{_FOLDER}/reward.txt")
"""The files that may hold the reward, in Harbor's order; the first one that exists counts."""
_MAX_BYTES = 1 << 16
_MOST_NAMES = 100
_MAX_LOG_BYTES = 32 << 20
_TAIL_CHARS = 4000
_READ = 'test -f "$1" && test ! -L "$1" && head -c "$2" <"$1"'


def score(given: RewardInput) -> float:
    """Score what the tests wrote as `reward`, or as their only number; 0 when they wrote nothing.

    This is the reward term `reward_file`, for partial credit. Several numbers without a `reward`
    have no score of their own: it is then 1 if the task is resolved, else 0.
    """
    scores = given.verdict.scores
    if REWARD in scores:
        return scores[REWARD]
    if len(scores) == 1:
        return next(iter(scores.values()))
    return 1.0 if given.verdict.resolved else 0.0


def parse(name: str, data: bytes) -> dict[str, float]:
    """Read the numbers in `reward.json` or `reward.txt`. Raises ValueError for a bad file."""
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it is longer than {_MAX_BYTES >> 10} KiB")
    text = data.decode()
    if not name.endswith(".json"):
        return {REWARD: _number(float(text))}
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    named = value if isinstance(value, dict) else {REWARD: value}
    if not 0 < len(named) <= _MOST_NAMES:
        raise ValueError(f"it has {len(named)} numbers; 1 to {_MOST_NAMES} are read")
    return {str(key)[:_TAIL_CHARS]: _number(each) for key, each in named.items()}


def _number(value: object) -> float:
    """Check a reward. A number too large for a float is refused."""
    if isinstance(value, bool | int | float):
        try:
            number = float(value)
        except OverflowError as error:
            raise ValueError("it has a number without bounds") from error
        if math.isfinite(number):
            return number
    raise ValueError(f"{value!r:.40} is no finite number")


@dataclass(frozen=True, slots=True)
class FolderRun:
    """One grading of a folder task in one clean sandbox."""

    instance: Instance
    delta: str
    """The changes to grade; empty for the untouched base."""
    timeout_s: float
    on_log: Callable[[bytes], None] = lambda _: None
    """Called with the log of the tests."""

    async def verdict(self, sandbox: Sandbox) -> Verdict:
        """Make the changes, run the tests and judge. Raises if anything but the changes breaks."""
        task = self.instance.folder
        if task is None:
            raise TaskError(f"{self.instance.instance_id} is no folder task", retryable=False)
        await folders.prepare(sandbox, task)
        try:
            entries = await asyncio.to_thread(delta.parse, self.delta) if self.delta else ()
            refusal = await folders.apply(sandbox, entries, task)
        except delta.DeltaError as error:
            refusal = str(error)
        if refusal:
            return self._judged(VerdictStatus.PATCH_FAILED, refusal, 0.0, {})
        await self._lay_out_tests(sandbox)
        result = await sandbox.exec(
            program(self.instance.evaluation).text,
            timeout_s=self.timeout_s,
            max_output=_MAX_LOG_BYTES,
        )
        self.on_log(result.stdout)
        if result.timed_out:
            return self._judged(VerdictStatus.TESTS_TIMED_OUT, _tail(result), result.duration_s, {})
        await sandbox.end_processes()
        scores, problem = await self._rewards(sandbox)
        status = VerdictStatus.NO_TESTS_RAN
        if scores:
            main = [scores[REWARD]] if REWARD in scores else list(scores.values())
            resolved = min(main) >= RESOLVED_AT
            status = VerdictStatus.RESOLVED if resolved else VerdictStatus.UNRESOLVED
        return self._judged(status, _tail(result), result.duration_s, scores, problem)

    async def _lay_out_tests(self, sandbox: Sandbox) -> None:
        """Add the tests to what the agent left, in folders that the agent did not make."""
        task = self.instance.folder
        assert task is not None  # noqa: S101 - checked by the caller
        await folders.remove(sandbox, folders.SOLUTION)
        await folders.make_empty(sandbox, folders.TESTS, _FOLDER)
        await folders.make(sandbox, f"{folders.LOGS}/agent", f"{folders.LOGS}/artifacts")
        await folders.lay_out(sandbox, task.tests)

    async def _rewards(self, sandbox: Sandbox) -> tuple[dict[str, float], str]:
        """Return the rewards, or no rewards and what is wrong with their file."""
        for path in _FILES:
            command = ["/bin/sh", "-c", _READ, "sh", path, str(_MAX_BYTES + 1)]
            result = await sandbox.exec(command, cwd="/")
            if result.ok:
                name = path.rpartition("/")[2]
                try:
                    return parse(name, result.stdout), ""
                except ValueError as error:
                    return {}, f"{name} has no reward: {error}"
        return {}, "the tests wrote no reward"

    def _judged(
        self,
        status: VerdictStatus,
        log: str,
        duration_s: float,
        scores: dict[str, float],
        problem: str = "",
    ) -> Verdict:
        # Such files are kept here: a folder task has no gold patch that says which ones it needs.
        steering = Task(frozenset(), frozenset(), "").undone(touched_paths(self.delta))
        findings = rules.shown(each.why for each in steering)
        statuses = {
            name: TestStatus.PASSED if value >= RESOLVED_AT else TestStatus.FAILED
            for name, value in scores.items()
        }
        return Verdict(
            status=status,
            report=TestReport(statuses, {}),
            integrity=(*findings, problem) if problem else findings,
            log_tail=log[-_TAIL_CHARS:],
            duration_s=duration_s,
            scores=scores,
        )


def _tail(result: ExecResult) -> str:
    shown = result.stdout if result.stdout.strip() else result.stderr
    return shown[-_TAIL_CHARS:].decode(errors="replace")
