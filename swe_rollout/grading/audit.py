"""Find bad rows: the gold patch must resolve a task every time, and no wrong patch may.

No model is needed. Each row gets several runs of its gold patch, one of its untouched base, and one
of each wrong patch that can be made for it. A breakage that is not the row's fault is no finding:
the row counts as not audited. Used by the command line; `audit_journal` keeps the results.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Final, TypeVar

import structlog

from swe_rollout.errors import EpisodeError, TaskError, gather_all
from swe_rollout.grading import rules
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.wrong_patches import WrongPatch, make_wrong_patches
from swe_rollout.sandbox.repository import Patch
from swe_rollout.text.redaction import redact
from swe_rollout.types.bad_rows import BadRow, Finding, GoldTimes
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestStatus, Verdict, VerdictStatus

T = TypeVar("T")
log = structlog.get_logger()

GOLD: Final = "gold"
BASE: Final = "base"
EMPTY: Final = "empty"
TASK: Final = "task"
"""The check that a row fails if it can't be used as it is."""
_TRIES: Final = 3
_BACKOFF_S: Final = 1.0
_STATUSES_KEPT: Final = 20
_FLAKY_KEPT: Final = 200
_ID_CHARS: Final = 300
_LOG_CHARS: Final = 2000
_MESSAGE_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of a row's audit. Its size is bounded, whatever the row contains."""

    instance_id: str
    digest: str
    runs: int
    """How often the gold patch was run."""
    verdicts: dict[str, tuple[VerdictStatus, ...]] = field(default_factory=dict)
    """The verdicts of each check, in the order in which they were reached."""
    not_applicable: dict[str, str] = field(default_factory=dict)
    """Checks that could not be made, each with the reason."""
    findings: tuple[Finding, ...] = ()
    flaky: tuple[str, ...] = ()
    """Expected tests whose status differed among the runs of the gold patch."""
    gold: GoldTimes | None = None
    odds: float | None = None
    """The odds of guessing what the tests expect; None if the gold patch did not resolve them."""
    unproven: str = ""
    """Why a forgery could pass the tests, too; empty if none can."""

    @property
    def is_bad(self) -> bool:
        """Whether the row failed a check."""
        return bool(self.findings)

    def bad_row(self) -> BadRow:
        """Return the row's line in a quarantine file."""
        return BadRow(
            self.instance_id,
            self.digest,
            self.findings,
            self.flaky,
            self.gold,
            software=version("swe-rollout"),
        )


@dataclass(frozen=True, slots=True)
class NotAudited:
    """A row about which nothing is known because something else broke."""

    instance_id: str
    why: str


async def audit_dataset(
    instances: Sequence[Instance],
    grader: Grader,
    *,
    runs: int,
    parallelism: int,
    on_result: Callable[[Audit | NotAudited], None],
) -> None:
    """Audit rows, `parallelism` at a time; pass each result to `on_result` when it is ready.

    Raises ExtensionError when a log parser is missing, and errors that concern all rows alike:
    PrerequisiteError and UnreachableError.
    """
    grader.site.require(instances)
    waiting = iter(instances)
    # The names of sandboxes differ, so two audits at a time do not disturb each other.
    name = f"audit-{secrets.token_hex(3)}"

    async def work() -> None:
        for instance in waiting:
            on_result(await audit(instance, grader, runs=runs, name=name))

    await gather_all([work() for _ in range(min(parallelism, len(instances)))])


async def audit(
    instance: Instance, grader: Grader, *, runs: int, name: str = "audit"
) -> Audit | NotAudited:
    """Audit one row; `name` is used in place of a job in the names of sandboxes."""
    try:
        return await _RowAudit(instance, grader, runs, name).result()
    except EpisodeError as error:
        log.warning("row_not_audited", instance=instance.instance_id, error=str(error))
        return NotAudited(instance.instance_id, str(error)[:_MESSAGE_CHARS])


class _RowAudit:
    """Audits one row: makes each check in turn, each run in a sandbox of its own."""

    def __init__(self, instance: Instance, grader: Grader, runs: int, name: str) -> None:
        self._instance = instance
        self._grader = grader
        self._runs = runs
        self._name = name
        self._sandboxes = 0
        self._verdicts: dict[str, tuple[VerdictStatus, ...]] = {}
        self._not_applicable: dict[str, str] = {}
        self._findings: list[Finding] = []

    async def result(self) -> Audit:
        gold: tuple[Verdict, ...] = ()
        try:
            gold = await self._gold()
            await self._wrong(BASE, self._base)
            await self._wrong(EMPTY, partial(self._grade, Patch()))
            await self._wrong_patches(gold)
        except TaskError as error:
            self._findings.append(Finding(TASK, _cut(str(error))))
        proven = [verdict for verdict in gold if verdict.resolved]
        return Audit(
            self._instance.instance_id,
            self._instance.digest,
            self._runs,
            self._verdicts,
            self._not_applicable,
            tuple(self._findings),
            flaky_tests(gold),
            _times(gold),
            proven[0].odds if proven else None,
            _cut(proven[0].unproven) if proven else "",
        )

    async def _gold(self) -> tuple[Verdict, ...]:
        if not _has_reference(self._instance):
            raise TaskError("the row has no reference fix", retryable=False)
        found: list[Verdict] = []
        while len(found) < self._runs:
            found.append(await self._tried(self._reference))
            self._verdicts[GOLD] = tuple(verdict.status for verdict in found)
            if found[-1].status is VerdictStatus.TESTS_TIMED_OUT:
                break  # A run that timed out is not worth repeating.
        if failed := [verdict for verdict in found if not verdict.resolved]:
            self._findings.append(self._failed_gold(failed, len(found)))
        return tuple(found)

    def _failed_gold(self, failed: Sequence[Verdict], runs: int) -> Finding:
        first = failed[0]
        why = "".join(f"; {each}" for each in first.integrity[:3])
        times = f"{len(failed)} of {runs} times"
        message = f"the gold patch did not resolve it, {times}: {first.status.value}{why}"
        return Finding(GOLD, _cut(message), self._unmet(first), _tail(first))

    async def _wrong_patches(self, gold: Sequence[Verdict]) -> None:
        if not any(verdict.resolved for verdict in gold):
            return  # Without it, a wrong patch that resolves nothing is no evidence.
        for patch in await self._tried(self._made):
            if patch.text:
                grade = partial(self._grade, Patch(patch.text))
                await self._wrong(patch.kind.value, grade)
            else:
                self._not_applicable[patch.kind.value] = patch.why_none

    async def _wrong(self, check: str, grade: Callable[[EpisodeId], Awaitable[Verdict]]) -> None:
        """Make a check whose patch must not resolve the task.

        Tests that accept a wrong patch are bad even if the grader sees through it.
        """
        verdict = await self._tried(grade)
        self._verdicts[check] = (verdict.status,)
        if verdict.status in (VerdictStatus.RESOLVED, VerdictStatus.TAMPERED):
            refused = "" if verdict.resolved else " by its tests, and is refused as tampering"
            statuses = verdict.report.fail_to_pass | verdict.report.pass_to_pass
            message = f"{_MESSAGES[check]}{refused}"
            self._findings.append(Finding(check, message, _few(statuses), _tail(verdict)))

    async def _tried(self, work: Callable[[EpisodeId], Awaitable[T]]) -> T:
        """Do the work in newly named sandboxes; retry it if something other than the row broke."""
        for tries in range(1, _TRIES + 1):
            self._sandboxes += 1
            try:
                return await work(
                    EpisodeId(self._name, self._instance.instance_id, self._sandboxes)
                )
            except TaskError:
                raise
            except EpisodeError as error:
                if not error.retryable or tries == _TRIES:
                    raise
                await asyncio.sleep(_BACKOFF_S * 2 ** (tries - 1))
        raise AssertionError("the last try returns or raises")

    async def _reference(self, episode: EpisodeId) -> Verdict:
        return await self._grader.grade_reference(self._instance, episode=episode)

    async def _base(self, episode: EpisodeId) -> Verdict:
        return await self._grader.grade_base(self._instance, episode=episode)

    async def _grade(self, patch: Patch, episode: EpisodeId) -> Verdict:
        return await self._grader.grade(self._instance, patch, episode=episode)

    async def _made(self, episode: EpisodeId) -> tuple[WrongPatch, ...]:
        request = self._grader.site.request(self._instance, episode=episode)
        async with self._grader.site.sandbox(request) as sandbox:
            return await make_wrong_patches(sandbox, self._instance)

    def _unmet(self, verdict: Verdict) -> dict[str, TestStatus]:
        report, rule = verdict.report, self._instance.rule
        unmet = {
            test: tests[test]
            for tests, accepted in (
                (report.fail_to_pass, rules.FIXED),
                (report.pass_to_pass, rules.KEPT),
            )
            for test in rules.unmet(tests, accepted, rule)
        }
        return _few(unmet)


_MESSAGES: Final[Mapping[str, str]] = {
    BASE: "the untouched base resolves it",
    EMPTY: "an empty diff resolves it",
    "delete_tests": "a patch that deletes the tests resolves it",
    "constant_return": "a patch whose functions all return None resolves it",
    "all_skipped": "a patch that skips all tests resolves it",
    "skipped_calls": "a patch whose functions skip the test that calls them resolves it",
}


def _times(runs: Sequence[Verdict]) -> GoldTimes | None:
    ran = [round(verdict.duration_s, 3) for verdict in runs if _has_tests(verdict)]
    return GoldTimes(min(ran), round(statistics.median(ran), 3), max(ran)) if ran else None


def flaky_tests(runs: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the first expected tests whose status differed between runs of one patch."""
    ran = [verdict for verdict in runs if _has_tests(verdict)]
    return tuple(_differing(ran))[:_FLAKY_KEPT]


def _differing(runs: Sequence[Verdict]) -> Iterator[str]:
    tests = [verdict.report.fail_to_pass | verdict.report.pass_to_pass for verdict in runs]
    for test in dict.fromkeys(test for each in tests for test in each):
        if len({each.get(test, TestStatus.MISSING) for each in tests}) > 1:
            yield _sound(test[:_ID_CHARS])


def _has_tests(verdict: Verdict) -> bool:
    """Return whether the verdict rests on a completed run of the tests."""
    ran = (VerdictStatus.RESOLVED, VerdictStatus.UNRESOLVED, VerdictStatus.TAMPERED)
    return verdict.status in ran


def _has_reference(instance: Instance) -> bool:
    if instance.folder is not None:
        return bool(instance.folder.solve)
    return bool(instance.gold_patch.strip())


def _few(statuses: Mapping[str, TestStatus]) -> dict[str, TestStatus]:
    shown = list(statuses.items())[:_STATUSES_KEPT]
    return {_sound(test[:_ID_CHARS]): status for test, status in shown}


def _tail(verdict: Verdict) -> str:
    return _sound(verdict.log_tail[-_LOG_CHARS:])


def _cut(text: str) -> str:
    return _sound(text if len(text) <= _MESSAGE_CHARS else f"{text[: _MESSAGE_CHARS - 1]}…")


def _sound(text: str) -> str:
    """Return text that is safe to write: rows may hold lone surrogates, and logs may hold keys."""
    return redact(text.encode(errors="replace").decode())
