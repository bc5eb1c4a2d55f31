"""Grade patches: apply one in a clean sandbox, add the hidden tests, run them, judge the log.

Whatever the patch does ends in a verdict; any other breakage (the sandbox, the task's own test
patch) raises, so lost infrastructure never becomes a reward. Nothing of the policy's sandbox but
its diff gets here. Code from the diff runs in the tests' process, though, so a run that resolves
the task must pass further checks. Used by the episode and by `validate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from swe_rollout.errors import (
    GraderError,
    SandboxDestroyedError,
    TaskError,
    boundary,
)
from swe_rollout.grading.copies import find_copies
from swe_rollout.grading.proof import (
    BLIND_PART,
    OncePerInstance,
    Proof,
    prove,
    require_within,
    suspicions,
    too_large,
)
from swe_rollout.grading.reward_file import FolderRun
from swe_rollout.grading.run import LogKeeper, RunResult, with_log, without_tests
from swe_rollout.grading.site import TestPlace, TestSite
from swe_rollout.grading.working_tree import solve
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import SandboxProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.grading import Integrity, Unproven
from swe_rollout.spec.model import Use
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestStatus, Verdict, VerdictStatus

_BASE_ATTEMPT = 1000
"""Added to the attempt number to name a second sandbox beside the first."""
_PROBLEM_CHARS = 500
_SHOWN = 3

log = structlog.get_logger()


class Grader:
    """Grades patches, each in a sandbox of its own. Safe for concurrent use."""

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        timeout_s: float | None = None,
        log_parser: Use | None = None,
        integrity: Integrity = Integrity.STRICT,
        unproven: Unproven = Unproven.ACCEPT,
        partial: bool = False,
        logs: LogKeeper | None = None,
    ) -> None:
        """Configure grading; `timeout_s` and `log_parser` override each instance's own.

        With `partial`, single tests that pass have to be proven, too. `logs` keeps the test output.
        Raises ExtensionError when there is no such parser.
        """
        self.site = TestSite(provider, timeout_s=timeout_s, log_parser=log_parser)
        """Where tests run."""
        self._integrity = integrity
        self._unproven = unproven
        self._partial = partial
        self._logs = logs
        self._proofs = OncePerInstance[Proof]()
        self._controls = OncePerInstance[None]()

    async def grade(
        self, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        """Grade `patch`. Raises SandboxError, GraderError or TaskError when there is no verdict.

        The first patch that resolves an instance costs runs of its gold patch, each a further run.
        """
        if not patch.usable:
            return _verdict(without_tests(instance, VerdictStatus.PATCH_FAILED, patch.problem))
        if not patch.text.strip():
            return _verdict(without_tests(instance, VerdictStatus.EMPTY_PATCH, ""))
        verdict = await self._graded(TestPlace(self.site, instance, episode, attempt), patch.text)
        if instance.folder is not None and verdict.status is VerdictStatus.NO_TESTS_RAN:
            await self._check_that_tests_run(instance, episode, attempt)
        return verdict

    async def grade_reference(self, instance: Instance, *, episode: EpisodeId) -> Verdict:
        """Grade the reference fix: the gold patch, or what the task's own solution changes.

        Raises TaskError when a solution exceeds its time limit.
        """
        if instance.folder is None:
            patch = repository.Patch(instance.gold_patch)
            return await self.grade(instance, patch, episode=episode)
        request = self.site.request(instance, episode=episode)
        async with self.site.sandbox(request) as sandbox:
            patch = await solve(sandbox, instance.folder)
        if not patch.usable:
            return _verdict(without_tests(instance, VerdictStatus.PATCH_FAILED, patch.problem))
        return await self._graded(TestPlace(self.site, instance, episode, attempt=2), patch.text)

    async def grade_base(
        self, instance: Instance, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        """Grade the untouched base; unlike with an empty patch, the tests are run."""
        return await self._graded(TestPlace(self.site, instance, episode, attempt), "")

    async def prove(self, instance: Instance, *, episode: EpisodeId) -> Proof:
        """Measure what the gold patch of an instance shows, or return the earlier measurement."""
        return await self._proof(TestPlace(self.site, instance, episode, 1))

    async def find_copies(self, instance: Instance, *, episode: EpisodeId) -> tuple[str, ...]:
        """Return files of the instance's image from which an agent could copy the fix."""
        async with self.site.sandbox(self.site.request(instance, episode=episode)) as sandbox:
            if instance.folder is not None:
                return await find_copies(sandbox, instance)
            await repository.hide(sandbox, instance)
            base = await repository.prepare(sandbox, instance)
            if instance.base_commit and not instance.base_patch:
                # This also searches what the image adds to the commit, such as untracked files.
                named = f"{instance.base_commit}^{{commit}}"
                found = await sandbox.exec(["git", "rev-parse", "--verify", "--quiet", named])
                base = found.stdout.decode(errors="replace").strip() or base
            return await find_copies(sandbox, instance, base)

    async def _graded(self, place: TestPlace, patch: str) -> Verdict:
        if place.instance.folder is not None:
            return await self._in_folders(place, patch)
        expected = place.instance.expected
        if not (expected.fail_to_pass or expected.pass_to_pass or expected.others):
            raise TaskError(
                f"{place.instance.instance_id} can't be graded",
                why="it expects no test, so any patch would resolve it",
                fix="give it FAIL_TO_PASS, or leave the instance out",
                retryable=False,
            )
        async with boundary(GraderError, "grading"):
            try:
                verdict, output = await self._judged(place, patch)
            except SandboxDestroyedError as error:
                verdict, output = await self._blamed(place, error), b""
            verdict = await with_log(self._logs, verdict, place.episode, output)
        log.info(
            "graded",
            episode=str(place.episode),
            status=verdict.status.value,
            tests_s=round(verdict.duration_s, 1),
            findings=len(verdict.integrity),
        )
        return verdict

    async def _judged(self, place: TestPlace, patch: str) -> tuple[Verdict, bytes]:
        """Return the verdict on a patch, and what its tests printed."""
        result = await place.run(patch)
        if result.broke_off:
            await self._require_within(place, result.broke_off)
        verdict = _verdict(result)
        if verdict.resolved:
            verdict = await self._checked(place, patch, result)
        elif self._partial and verdict.status is VerdictStatus.UNRESOLVED and _fixed(result):
            verdict = await self._partly(place, patch, result)
        return verdict, result.output

    async def _blamed(self, place: TestPlace, error: SandboxDestroyedError) -> Verdict:
        """Return the verdict on a patch whose tests brought the sandbox down.

        Raises GraderError if the tests do so without the patch, too.
        """
        await self._require_within(place, str(error))
        verdict = _verdict(without_tests(place.instance, VerdictStatus.UNRESOLVED, str(error)))
        finding = f"the tests of the patch ended the grading sandbox: {error.why}"
        return replace(verdict, integrity=(finding[:_PROBLEM_CHARS],))

    async def _checked(self, place: TestPlace, patch: str, result: RunResult) -> Verdict:
        """Accept a run that resolves the task, or say why it is not believed."""
        proof = await self._proof(place)
        verdict = replace(
            _verdict(result), odds=proof.blind.odds, unproven=self._accepted(place, proof.unproven)
        )
        found = list(suspicions(result, proof))
        if not found and proof.blind.blind.files:
            seen = await self._blind_run(place, patch, proof)
            if seen.broke_off or seen.status is VerdictStatus.TESTS_TIMED_OUT:
                return replace(_verdict(result), status=seen.status, log_tail=seen.log_tail)
            shown = await asyncio.to_thread(seen.read_blind)
            found += proof.blind.problems(shown, place.instance.expected)
            if not found:
                proof.blind.require_plain(shown)
        return self._accused(verdict, found) if found else verdict

    async def _partly(self, place: TestPlace, patch: str, result: RunResult) -> Verdict:
        """Take back each pass of a test to fix whose checks do not hold in a blind run."""
        proof = await self._proof(place)
        self._accepted(place, proof.unproven)
        verdict = _verdict(result)
        if not proof.blind.blind.files:
            return verdict
        seen = await self._blind_run(place, patch, proof)
        held = proof.blind.held(await asyncio.to_thread(seen.read_blind))
        lost = [test for test in _fixed(result) if test not in held]
        report = replace(
            verdict.report,
            fail_to_pass=verdict.report.fail_to_pass | dict.fromkeys(lost, TestStatus.FAILED),
        )
        more = [f"and {len(lost) - _SHOWN} more like this"] if lost[_SHOWN:] else []
        found = [f"{test} passes only where it can see what is expected" for test in lost[:_SHOWN]]
        return replace(verdict, report=report, integrity=(*found, *more, *verdict.integrity))

    async def _blind_run(self, place: TestPlace, patch: str, proof: Proof) -> RunResult:
        seen = await place.run(patch, part=BLIND_PART, blind=proof.blind.blind)
        if seen.broke_off:
            await self._require_within(place, seen.broke_off)
        return seen

    def _accepted(self, place: TestPlace, unproven: str) -> str:
        """Return why a resolved verdict is unproven. Raises TaskError if that is to be masked."""
        if unproven and self._unproven is Unproven.MASK:
            raise TaskError(
                f"a fix of {place.instance.instance_id} can't be told from a forgery",
                why=unproven,
                fix="leave the instance out, or set spec.grading.unproven: accept",
                retryable=False,
            )
        return unproven

    def _accused(self, verdict: Verdict, found: Sequence[str]) -> Verdict:
        status = VerdictStatus.TAMPERED if self._integrity is Integrity.STRICT else verdict.status
        tampered = (f"tampered: {each}" for each in found)
        known = (*tampered, *verdict.integrity)
        return replace(verdict, status=status, integrity=known, odds=None, unproven="")

    async def _require_within(self, place: TestPlace, evidence: str) -> None:
        measure = partial(require_within, place.instance, place.run, evidence)
        await self._controls.of(place.instance, measure)

    async def _proof(self, place: TestPlace) -> Proof:
        return await self._proofs.of(place.instance, partial(prove, place.instance, place.run))

    async def _in_folders(self, place: TestPlace, delta: str) -> Verdict:
        instance = place.instance
        request = self.site.request(instance, episode=place.episode, attempt=place.attempt)
        written: list[bytes] = []
        run = FolderRun(instance, delta, self.site.test_run_s(instance), on_log=written.append)
        async with boundary(GraderError, "grading"):
            try:
                async with self.site.sandbox(request) as sandbox:
                    verdict = await run.verdict(sandbox)
            except SandboxDestroyedError as error:
                verdict = await self._blamed_in_folders(place, delta, error)
            if verdict.resolved:
                why = "the task's own verifier wrote the reward"
                verdict = replace(verdict, unproven=self._accepted(place, why))
            return await with_log(self._logs, verdict, place.episode, b"".join(written))

    async def _blamed_in_folders(
        self, place: TestPlace, delta: str, error: SandboxDestroyedError
    ) -> Verdict:
        """Do what `_blamed` does, for a folder task, whose control is the untouched base."""
        instance = place.instance
        if not delta:
            raise too_large(instance, f"with the untouched base: {error}")
        base = TestPlace(self.site, instance, place.episode, place.attempt + _BASE_ATTEMPT)
        await self._in_folders(base, "")
        verdict = _verdict(without_tests(instance, VerdictStatus.UNRESOLVED, str(error)))
        finding = f"the tests of the patch ended the grading sandbox: {error.why}"
        return replace(verdict, integrity=(finding[:_PROBLEM_CHARS],))

    async def _check_that_tests_run(
        self, instance: Instance, episode: EpisodeId, attempt: int
    ) -> None:
        """Raise TaskError when the tests write no reward for the untouched base either.

        In that case the agent is not to blame: the network may be missing, for example.
        """
        place = TestPlace(self.site, instance, episode, attempt + _BASE_ATTEMPT)
        base = await self._in_folders(place, "")
        if base.status in (VerdictStatus.NO_TESTS_RAN, VerdictStatus.TESTS_TIMED_OUT):
            raise TaskError(
                f"the tests of {instance.instance_id} write no reward",
                why=f"nor do they for the untouched base: {base.log_tail[-500:].strip()}",
                fix="run `swe-rollout validate`; tests may need programs that the image lacks, or "
                "a network",
            )


def _fixed(result: RunResult) -> list[str]:
    """Return the tests to fix that pass according to the log."""
    return [t for t, status in result.report.fail_to_pass.items() if status is TestStatus.PASSED]


def _verdict(result: RunResult) -> Verdict:
    return Verdict(
        status=result.status,
        report=result.report,
        integrity=result.findings,
        log_tail=result.log_tail,
        duration_s=result.duration_s,
    )
