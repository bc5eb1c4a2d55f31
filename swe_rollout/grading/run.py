"""Run a task's tests once, against one patch in one sandbox, and return what the run shows.

Whatever the patch does ends in a result; any other breakage raises. Used by `grader`.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from swe_rollout.errors import SweRolloutError
from swe_rollout.grading import junit, rules
from swe_rollout.grading import program as programs
from swe_rollout.grading.blind import MAX_RECORDS_BYTES, Blind, BlindRun
from swe_rollout.grading.blind_files import TestFile
from swe_rollout.grading.parsers.base import (
    MOST_CHARS,
    EndlessIdsError,
    NamedLogParser,
    Result,
)
from swe_rollout.grading.program import Program, program
from swe_rollout.grading.working_tree import AppliedPatch, WorkingTree, replaced_files
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.sandbox.patch_text import touched_paths
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestLog, TestReport, TestStatus, Verdict, VerdictStatus

log = structlog.get_logger()
MAX_LOG_BYTES = 32 << 20
TAIL_CHARS = 4000

_PROBLEM_CHARS = 500
_KILLED = 128
"""A shell killed by a signal has an exit code above this."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a run."""

    status: VerdictStatus
    """The status according to the log alone."""
    report: TestReport
    statuses: Mapping[str, TestStatus] = field(default_factory=dict)
    """The status of every test that the log names."""
    findings: tuple[str, ...] = ()
    contradictions: frozenset[str] = frozenset()
    """Expected tests that the log reports both as passed and as failed."""
    cases: Mapping[str, TestStatus] | None = None
    """The tests in the runner's own report; None if no report was requested."""
    log: str = field(default="", repr=False)
    output: bytes = field(default=b"", repr=False)
    """The log as written, even if the run broke off."""
    log_tail: str = ""
    duration_s: float = 0.0
    test_files: tuple[TestFile, ...] = ()
    """The files of the hidden tests, if they were requested."""
    records: bytes = field(default=b"", repr=False)
    """What a blind run recorded."""
    broke_off: str = ""
    """How the run ended, if a signal may have ended it, such as the kernel's out-of-memory kill;
    empty if none did, or if the run resolves the task all the same."""

    def read_blind(self) -> BlindRun:
        """Return what the run showed, if it was blind. Takes up to seconds."""
        expected = self.report.fail_to_pass | self.report.pass_to_pass
        known = {test: s for test, s in expected.items() if s is not TestStatus.MISSING}
        return BlindRun.of({**self.statuses, **known}, self.records)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an instance's tests."""

    instance: Instance
    patch: str
    timeout_s: float
    parser: NamedLogParser
    blind: Blind | None = None
    """The blind tests that replace the hidden tests, if any."""
    reads_tests: bool = False
    """Whether to read the hidden tests' files before anything runs."""

    def check(self) -> None:
        """Raise TaskError if the instance does not say how to run its tests."""
        program(self.instance.evaluation)

    async def result(self, sandbox: Sandbox) -> RunResult:
        """Run the tests in a new sandbox. Raises SandboxError, GraderError or TaskError."""
        base = await repository.prepare(sandbox, self.instance)
        tree, applied = WorkingTree(sandbox, self.instance, base), AppliedPatch()
        if self.patch:
            applied = await tree.apply(self.patch)
            if applied.refusal is not None:
                return without_tests(self.instance, VerdictStatus.PATCH_FAILED, applied.refusal)
        test_files = await tree.read_tests() if self.reads_tests else ()
        secret = f"/tmp/{secrets.token_hex(16)}"  # noqa: S108 (in the sandbox; nobody knows it)
        hidden = self.instance.test_patch
        if self.blind is not None:
            texts = self.blind.texts(f"{secret}.records")
            hidden = replaced_files(hidden, texts, self.blind.bases)
        refusal = await tree.add_hidden_tests(hidden, only_try=self._is_official)
        if refusal is not None:
            return without_tests(self.instance, VerdictStatus.PATCH_FAILED, refusal)
        result = await self._run_tests(sandbox, base, applied, hidden, secret)
        records = b""
        if self.blind is not None:
            records = await _read(sandbox, f"{secret}.records", max_bytes=MAX_RECORDS_BYTES)
        # Without isolation, /tmp is the machine's own.
        await sandbox.exec(f"rm -f {secret}.*", timeout_s=repository.STEP_S)
        return replace(result, test_files=test_files, records=records)

    @property
    def _is_official(self) -> bool:
        return self.instance.evaluation.script is not None

    async def _run_tests(
        self, sandbox: Sandbox, base: str, applied: AppliedPatch, hidden: str, secret: str
    ) -> RunResult:
        made = program(self.instance.evaluation)
        setup, tests, findings = made.setup, made.tests, applied.findings
        path = f"{secret}.xml"
        official = None
        if self._is_official:
            place = await self._place(sandbox, base)
            official = self._setup(setup, place, applied.changed, hidden, f"{secret}.install")
            setup, tests = official.text, place.adapt(tests)
            findings += official.findings
        if self.blind is not None:  # nearly all tests fail, and nobody reads why
            tests = junit.without_tracebacks(tests)
        reported = junit.with_report(tests, path)
        result = await sandbox.exec(
            Program(setup, reported or tests).text,
            timeout_s=self.timeout_s,
            max_output=MAX_LOG_BYTES,
        )
        if official is not None and official.installs:
            findings += programs.of_install(await _read(sandbox, f"{secret}.install"))
        if result.timed_out:
            cut = without_tests(
                self.instance, VerdictStatus.TESTS_TIMED_OUT, _tail(result), result.duration_s
            )
            return replace(cut, output=result.stdout)
        report: bytes | None = None
        if reported is not None:
            report = await _read(sandbox, path)
        # A log of many megabytes takes seconds to parse.
        return await asyncio.to_thread(self._judge, result, report, findings)

    def _setup(
        self, setup: str, place: programs.Place, changed: frozenset[str], hidden: str, path: str
    ) -> programs.Setup:
        """Return the steps of an official script before the tests, adapted to this run."""
        tests = self.instance.test_patch
        setup = setup.replace(tests, hidden) if tests else setup
        changed |= frozenset(touched_paths(tests))
        return programs.rewrite(setup, patch=hidden, place=place, changed=changed, path=path)

    async def _place(self, sandbox: Sandbox, base: str) -> programs.Place:
        """Find out whether the sandbox has the commit and folder that the script names."""
        named = self.instance.base_commit or base
        found = await sandbox.exec(
            ["git", "cat-file", "-e", f"{named}^{{commit}}"], timeout_s=repository.STEP_S
        )
        return programs.Place(
            self.instance.workdir, sandbox.workdir, "" if found.ok else named, base
        )

    def _judge(
        self,
        result: ExecResult,
        report: bytes | None,
        findings: tuple[str, ...],
    ) -> RunResult:
        text, results, problem = self._read_log(result)
        expected = self.instance.expected
        names = frozenset(expected.fail_to_pass + expected.pass_to_pass)
        statuses = {result.test: result.status for result in results}
        judgement = rules.judge(statuses, expected, self.instance.rule, log=text)
        contradictions = rules.contradictions(results, names)
        findings += rules.of_contradictions(contradictions)
        status = judgement.status
        if problem:
            findings += (problem,)
        elif status is not VerdictStatus.NO_TESTS_RAN and (
            found := rules.of_exit(statuses, result.exit_code)
        ):
            # As the official harness does: such a log does not describe the run that happened.
            status = VerdictStatus.UNRESOLVED
            findings += found
        return RunResult(
            status,
            judgement.report,
            statuses,
            findings,
            contradictions,
            cases=None if report is None else junit.read_report(report),
            log=text,
            output=result.stdout,
            log_tail=_tail(result),
            duration_s=result.duration_s,
            broke_off=_end_by_signal(result, status),
        )

    def _read_log(self, result: ExecResult) -> tuple[str, list[Result], str]:
        """Return the log and what it says of tests, or nothing and why it can't be believed."""
        if problem := _problem(result):
            return "", [], problem
        text = result.stdout.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        try:
            return text, self.parser.read(text), ""
        except EndlessIdsError:
            why = f"the ids of its tests have more than {MOST_CHARS >> 20} Mi characters"
            return "", [], f"the log can't be read: {why}"


def without_tests(
    instance: Instance, status: VerdictStatus, why: str, duration_s: float = 0.0
) -> RunResult:
    """Make the result of a run without tests."""
    return RunResult(
        status,
        rules.report_of({}, instance.expected, instance.rule),
        log_tail=why[-TAIL_CHARS:],
        duration_s=duration_s,
    )


def _problem(result: ExecResult) -> str:
    """Return why the log does not describe a complete run; empty when it does."""
    if result.exit_code > _KILLED:
        return f"the test run broke off with exit code {result.exit_code}"
    if result.stdout_bytes > len(result.stdout):
        return f"the log is longer than {MAX_LOG_BYTES >> 20} MiB: its end is missing"
    return ""


def _end_by_signal(result: ExecResult, status: VerdictStatus) -> str:
    if status is VerdictStatus.RESOLVED or result.exit_code < _KILLED:
        return ""
    return "the tests ended as by a signal, such as the kernel's where memory is out"


async def _read(sandbox: Sandbox, path: str, *, max_bytes: int = junit.MAX_BYTES) -> bytes:
    """Read what a run may have written; return nothing if it has not, or too much."""
    try:
        return await sandbox.read_file(path, max_bytes=max_bytes)
    except OSError:
        return b""


def _tail(result: ExecResult) -> str:
    shown = result.stdout if result.stdout.strip() else result.stderr
    return shown[-TAIL_CHARS:].decode(errors="replace")


class LogKeeper(Protocol):
    """Keeps test output; stores implement this."""

    async def keep_log(self, episode: EpisodeId, data: bytes) -> TestLog:
        """Write the log of an episode's test run. Raises SweRolloutError."""
        ...


async def with_log(
    logs: LogKeeper | None, verdict: Verdict, episode: EpisodeId, output: bytes
) -> Verdict:
    """Keep a verdict's log and return the verdict. A store that refuses it fails no episode."""
    if logs is None or not output:
        return verdict
    try:
        kept = await logs.keep_log(episode, output)
    except SweRolloutError as error:
        log.warning("test_log_not_kept", episode=str(episode), why=str(error))
        sha256 = hashlib.sha256(output).hexdigest()
        kept = TestLog("", len(output), sha256, problem=str(error)[:_PROBLEM_CHARS])
    return replace(verdict, test_log=kept)
