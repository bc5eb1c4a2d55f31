"""What a worker tells: the counts, and how seldom."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.errors import ClusterError, PrerequisiteError
from swe_rollout.events import Phase
from swe_rollout.spec.status import (
    PROGRESS_ANNOTATION,
    ConditionType,
    EpisodeCounts,
    WorkerProgress,
)
from swe_rollout.worker import progress_report as report
from swe_rollout.worker.progress_report import Reporter, ShardProgress, WriteAllowance
from swe_rollout.worker.service_health import Conditions
from unit.worker.worker_parts import LOST, NO_IMAGE, attempts, trajectory


def test_running_episodes_that_are_graded_are_counted() -> None:
    count = ShardProgress(Conditions())
    one, two, three, four = (each.episode for each in attempts(4))
    for episode in (one, two, three, four):
        count.phase(episode, Phase.GRADE)
    count.phase(two, Phase.COMMIT)
    count.retried(three, NO_IMAGE, 1)

    assert count.snapshot(running=3, finished=False).episodes.grading == 2
    assert count.snapshot(running=1, finished=False).episodes.grading == 1


def test_running_episodes_that_wait_for_the_cache_are_counted() -> None:
    count = ShardProgress(Conditions())
    count.cache_awaited(3, 2, 100, 100)

    assert count.snapshot(running=9, finished=False).episodes.awaiting_cache == 5
    assert count.snapshot(running=4, finished=False).episodes.awaiting_cache == 4


def test_counts_are_of_everything_that_is_committed() -> None:
    count = ShardProgress(Conditions())
    one, two, three, _ = attempts(4)
    count.planned(4, 1)
    count.done(trajectory(one))
    count.done(trajectory(two, resolved=False))
    count.done(trajectory(three, failure=NO_IMAGE))
    told = count.snapshot(running=1, finished=False)
    assert told.episodes == EpisodeCounts(
        total=4, committed=3, running=1, resolved=1, unresolved=1, masked=1
    )
    assert told.stop_reasons == {"submitted": 2}
    assert told.failures == {"ImageUnavailableError": 1}
    assert told.reward_sum == 1.0
    assert not told.finished


def test_each_commit_of_this_worker_is_told_and_no_earlier_one() -> None:
    told = list[int]()
    count = ShardProgress(Conditions(), on_commit=lambda: told.append(1))
    one, two, three = attempts(3)

    count.earlier(trajectory(one))
    count.done(trajectory(two))
    count.done(trajectory(three, failure=NO_IMAGE))

    assert len(told) == 2


def test_a_masked_trajectory_counts_as_masked_only() -> None:
    count = ShardProgress(Conditions())
    graded = trajectory(attempts(1)[0])
    count.done(replace(graded, failure=NO_IMAGE, reward=None))
    told = count.snapshot(running=0, finished=True).episodes
    assert (told.resolved, told.unresolved, told.masked) == (0, 0, 1)


def test_a_worker_says_what_it_masked_itself_and_what_the_whole_job_has() -> None:
    count = ShardProgress(Conditions(), job=40)
    count.planned(10, 1)
    (first, second, third) = attempts(3)
    count.earlier(trajectory(first, failure=LOST))
    count.done(trajectory(second, failure=LOST))
    count.done(trajectory(third))
    said = count.snapshot(running=0, finished=False)
    assert (said.planned, said.episodes.total) == (40, 10)
    assert (said.episodes.masked, said.masked_now) == (2, 1)


def test_what_stands_in_the_way_is_told_with_reason_and_cure() -> None:
    conditions = Conditions()
    conditions.fail(
        ConditionType.STORAGE_READY, PrerequisiteError("no\nstore", why="it is off", fix="start it")
    )
    (trouble,) = ShardProgress(conditions).snapshot(running=0, finished=False).unmet
    assert (trouble.condition, trouble.reason) == (ConditionType.STORAGE_READY, "Prerequisite")
    assert trouble.message == "no store: it is off. start it"
    conditions.clear(ConditionType.STORAGE_READY)
    assert ShardProgress(conditions).snapshot(running=0, finished=False).unmet == ()


def test_many_short_episodes_use_one_write_for_twenty_of_them() -> None:
    allowance = WriteAllowance()
    writes = 0
    for committed in range(1, 401):
        if allowance.covers_one(committed):
            allowance.spend()
            writes += 1
    assert 20 <= writes <= 23


def test_long_episodes_are_told_of_now_and_then(clock: Clock) -> None:
    allowance = WriteAllowance()
    writes = []
    for second in range(600):
        clock.now = float(second)
        if allowance.covers_one(0):
            allowance.spend()
            writes.append(second)
    assert 10 <= len(writes) <= 12


def test_somebody_who_waits_for_news_gets_some_at_once() -> None:
    allowance = WriteAllowance()
    for _ in range(10):
        allowance.spend()
    assert not allowance.covers_one(0)
    allowance.refill()
    writes = 0
    while allowance.covers_one(0):
        allowance.spend()
        writes += 1
    assert writes == report.HURRIED_WRITES


class Pod:
    """A client of which only the annotations of one pod are of interest."""

    def __init__(self) -> None:
        self.told: list[WorkerProgress] = []
        self.is_away = False

    async def merge(
        self, kind: object, namespace: str, name: str, patch: dict[str, dict[str, dict[str, str]]]
    ) -> None:
        assert (kind, namespace, name) == (PODS, "rl", "worker-0")
        if self.is_away:
            raise ClusterError("no answer")
        self.told.append(
            WorkerProgress.model_validate_json(
                patch["metadata"]["annotations"][PROGRESS_ANNOTATION]
            )
        )


@pytest.fixture
def pod() -> Pod:
    return Pod()


class EndedError(Exception):
    """The time of a test is over."""


class Clock:
    """The time of the module, which passes only while it sleeps."""

    timeout = staticmethod(asyncio.timeout)

    def __init__(self) -> None:
        self.now = self.end = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.end:
            raise EndedError


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(report, "time", found)
    monkeypatch.setattr(report, "asyncio", found)
    return found


@pytest.fixture
def count() -> ShardProgress:
    return ShardProgress(Conditions())


def reporter(pod: Pod, count: ShardProgress) -> Reporter:
    client: ClusterClient = pod  # type: ignore[assignment]
    return Reporter(
        client,
        namespace="rl",
        pod="worker-0",
        progress=lambda: count.snapshot(running=0, finished=False),
    )


async def told_for(reporter: Reporter, clock: Clock, seconds: float = 4.0) -> None:
    """Let a reporter run for so long: by default for two writes."""
    clock.end = clock.now + seconds
    with pytest.raises(EndedError):
        await reporter.run()


async def test_the_first_says_that_it_runs_and_nothing_is_written_while_nothing_changes(
    pod: Pod, count: ShardProgress, clock: Clock
) -> None:
    ours = reporter(pod, count)
    await told_for(ours, clock)
    assert pod.told == [WorkerProgress()]
    count.planned(4, 0)
    await told_for(ours, clock)
    assert [told.episodes.total for told in pod.told] == [0, 4]
    await ours.write_last()
    assert len(pod.told) == 2


async def test_a_write_that_failed_is_made_again(
    pod: Pod, count: ShardProgress, clock: Clock
) -> None:
    ours = reporter(pod, count)
    count.planned(4, 0)
    pod.is_away = True
    await told_for(ours, clock)
    pod.is_away = False
    await told_for(ours, clock)
    assert [told.episodes.total for told in pod.told] == [4]


async def test_the_last_word_is_written_whatever_was_allowed(
    pod: Pod, count: ShardProgress, clock: Clock
) -> None:
    ours = reporter(pod, count)
    for sample, attempt in enumerate(attempts(4)):
        count.done(trajectory(attempt))
        if sample < 3:
            await told_for(ours, clock)
    await ours.write_last()
    assert pod.told[-1].episodes.committed == 4


async def test_trouble_is_told_even_when_counts_would_have_to_wait(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    conditions = Conditions()
    count = ShardProgress(conditions)
    ours = reporter(pod, count)
    monkeypatch.setattr(report, "WRITE_EACH_S", 1e9)
    for total in range(1, 6):
        count.planned(total, 0)
        await told_for(ours, clock)
    assert len(pod.told) == report.BURST_WRITES
    conditions.mark(ConditionType.MODEL_READY, "UnreachableError", "no engine")
    await told_for(ours, clock)
    assert pod.told[-1].unmet[0].reason == "Unreachable"
    # It may have spent the failure budget of the whole job.
    count.done(trajectory(attempts(1)[0], failure=LOST))
    await told_for(ours, clock)
    assert pod.told[-1].masked_now == 1
