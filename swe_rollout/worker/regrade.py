"""Grade the patches of stored episodes again, to find unstable verdicts and tests.

No model is needed, and no record changes. Used by `swe-rollout regrade`.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from swe_rollout.context import grading_again
from swe_rollout.errors import EpisodeError, GraderError, boundary
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.limits import RetrySpec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import TestStatus, Verdict, VerdictStatus

_RAN = (VerdictStatus.RESOLVED, VerdictStatus.UNRESOLVED)
"""Verdicts based on tests."""


@dataclass(frozen=True, slots=True)
class UnstableTest:
    """A test whose status varied for the same patch."""

    name: str
    recorded: TestStatus | None
    """The status in the record; None if its grading ran no tests."""
    statuses: tuple[TestStatus, ...]
    """The statuses in the new gradings, in order."""

    @property
    def strays(self) -> int:
        """Return how many new gradings differ from the majority (record included)."""
        return len(self._all) - max(Counter(self._all).values()) if self._all else 0

    @property
    def flake_rate(self) -> float:
        """Return the share of gradings (record included) that differ from the majority."""
        return self.strays / len(self._all) if self._all else 0.0

    @property
    def _all(self) -> tuple[TestStatus, ...]:
        return self.statuses if self.recorded is None else (self.recorded, *self.statuses)


@dataclass(frozen=True, slots=True)
class Regrading:
    """The result of grading one episode's patch again."""

    episode: EpisodeId
    recorded: VerdictStatus | None
    """None if the episode has no verdict: its grading failed, or the job grades nothing."""
    statuses: tuple[VerdictStatus, ...] = ()
    unstable: tuple[UnstableTest, ...] = ()
    failures: tuple[str, ...] = ()
    """Gradings that failed, which says nothing about the patch."""
    skipped: str = ""
    """Why nothing was graded; empty if something was."""

    @property
    def changed(self) -> bool:
        """Whether any new verdict differs from the recorded one or from another new one."""
        return len({*self.statuses, *([self.recorded] if self.recorded else [])}) > 1


@dataclass(frozen=True, slots=True)
class Regrader:
    """Grades the patches of one job again. Safe for concurrent use."""

    grader: Grader
    times: int
    """Gradings of each patch, at least 1."""
    retry: RetrySpec
    name: str = field(default_factory=lambda: f"regrade-{secrets.token_hex(3)}")
    """Replaces the job's name in sandbox names, so a running job's sandboxes are left alone."""

    async def regrade(self, trajectory: Trajectory, instance: Instance) -> Regrading:
        """Grade a patch again. The result holds any failures."""
        recorded = trajectory.verdict
        status = recorded.status if recorded else None
        if why := ungradable(trajectory):
            return Regrading(trajectory.episode, status, skipped=why)
        verdicts, failures, numbers = list[Verdict](), list[str](), count(1)
        episode = EpisodeId(self.name, instance.instance_id, trajectory.episode.sample)

        async def grade() -> Verdict:
            patch = Patch(trajectory.patch)
            # The attempt number makes the sandbox's name unique.
            async with boundary(GraderError, "grading"):
                return await self.grader.grade(
                    instance, patch, episode=episode, attempt=next(numbers)
                )

        for _ in range(self.times):
            try:
                verdicts.append(await grading_again(self.retry)(grade))
            except EpisodeError as error:
                failures.append(str(error))
        return Regrading(
            trajectory.episode,
            status,
            tuple(verdict.status for verdict in verdicts),
            tuple(_unstable(recorded, verdicts)),
            tuple(failures),
        )


def ungradable(trajectory: Trajectory) -> str:
    """Return why the record has no patch to grade; empty if it has one."""
    if trajectory.patch.strip():
        return ""
    if trajectory.failure is not None:
        return "it failed before its diff was made"
    if trajectory.verdict and trajectory.verdict.status is VerdictStatus.PATCH_FAILED:
        return "its diff could not be made"
    return ""


def _unstable(recorded: Verdict | None, verdicts: Sequence[Verdict]) -> Iterator[UnstableTest]:
    before = _tests(recorded) if recorded and recorded.status in _RAN else {}
    ran = [_tests(verdict) for verdict in verdicts if verdict.status in _RAN]
    names = dict.fromkeys([*before, *(name for tests in ran for name in tests)])
    for name in names:
        now = tuple(tests.get(name, TestStatus.MISSING) for tests in ran)
        test = UnstableTest(name, before.get(name), now)
        if test.strays:
            yield test


def _tests(verdict: Verdict) -> Mapping[str, TestStatus]:
    return {**verdict.report.pass_to_pass, **verdict.report.fail_to_pass}


@dataclass(frozen=True, slots=True)
class FlakyTest:
    """An unstable test of one task, over all episodes that were graded again."""

    instance: str
    name: str
    episodes: int
    """Episodes whose gradings disagreed about the test."""
    rate: float
    """The mean of their flake rates."""


def flaky_tests(found: Iterable[Regrading]) -> tuple[FlakyTest, ...]:
    """Return the unstable tests by task, the worst first."""
    rates: dict[tuple[str, str], list[float]] = {}
    for each in found:
        for test in each.unstable:
            rates.setdefault((each.episode.instance, test.name), []).append(test.flake_rate)
    tests = [
        FlakyTest(instance, name, len(rate), sum(rate) / len(rate))
        for (instance, name), rate in rates.items()
    ]
    return tuple(sorted(tests, key=lambda each: (-each.rate, each.instance, each.name)))


@dataclass(slots=True)
class RegradeReport:
    """The results so far of grading a job's patches again."""

    times: int
    """Gradings of each patch."""
    found: list[Regrading] = field(default_factory=list)
    complete: bool = False
    """Whether every patch was graded; False after an interruption."""

    @property
    def ordered(self) -> list[Regrading]:
        """Return the episodes sorted by instance, then sample."""
        return sorted(self.found, key=lambda each: (each.episode.instance, each.episode.sample))

    @property
    def changed(self) -> int:
        """Return how many episodes have a changed verdict."""
        return sum(each.changed for each in self.found)

    @property
    def broken(self) -> int:
        """Return how many episodes had a grading that failed."""
        return sum(bool(each.failures) for each in self.found)

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values."""
        graded = [each for each in self.found if not each.skipped]
        return {
            "complete": self.complete,
            "times": self.times,
            "graded": len(graded),
            "skipped": len(self.found) - len(graded),
            "changed": self.changed,
            "broken": self.broken,
            "episodes": [_episode(each) for each in self.ordered],
            "flaky_tests": [
                {
                    "instance_id": each.instance,
                    "test": each.name,
                    "episodes": each.episodes,
                    "flake_rate": each.rate,
                }
                for each in flaky_tests(self.found)
            ],
        }


def _episode(found: Regrading) -> dict[str, object]:
    return {
        "episode": str(found.episode),
        "recorded": found.recorded,
        "verdicts": list(found.statuses),
        "changed": found.changed,
        "unstable_tests": [_test(test) for test in found.unstable],
        "failures": list(found.failures),
        "skipped": found.skipped or None,
    }


def _test(test: UnstableTest) -> dict[str, object]:
    return {
        "test": test.name,
        "recorded": test.recorded,
        "statuses": list(test.statuses),
        "flake_rate": test.flake_rate,
    }
