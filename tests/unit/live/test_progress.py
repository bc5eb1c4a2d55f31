"""The progress of a job, counted."""

from __future__ import annotations

import pytest

from swe_rollout.events import Phase
from swe_rollout.live.progress import LiveProgress, LiveTitle
from swe_rollout.live.snapshot import Count, Groups
from swe_rollout.types.episode import EpisodeId
from unit.cli.run_parts import FAILURE, ended, episode, turn


def progress_of(*, size: int = 2, clock: list[float] | None = None) -> LiveProgress:
    times = [0.0] if clock is None else clock
    title = LiveTitle("demo", group_size=lambda _: size)
    return LiveProgress(title, clock=lambda: times[0])


def groups_of(progress: LiveProgress) -> Groups | None:
    records = progress.snapshot().records
    assert records is not None
    return records.groups


def test_a_failed_episode_counts_as_masked_and_not_as_reward_0() -> None:
    progress = progress_of()
    progress.done(ended(0, 1.0))
    progress.done(ended(1, None, failure=FAILURE))

    found = progress.snapshot()
    assert (found.mean_reward, found.failed, found.committed) == (1.0, 1, 2)
    assert found.failures == (Count("sandbox", 1),)
    assert found.verdicts == (Count("resolved", 1),)


def test_an_episode_is_not_running_between_two_attempts() -> None:
    progress = progress_of()
    progress.planned(3, 0)
    progress.phase(episode(0), Phase.START)
    progress.retried(episode(0), FAILURE, 1)

    found = progress.snapshot()
    assert (found.phases[:2], found.retries) == ((Count("queued", 3), Count("starting", 0)), 1)


def test_episodes_that_wait_for_the_cache_are_a_phase() -> None:
    progress = progress_of()
    progress.cache_awaited(3, 2, 100, 100)

    assert progress.snapshot().phases[-1] == Count("awaiting KV cache", 5)


def test_percentiles_are_of_recent_turns() -> None:
    progress = progress_of()
    for seconds in range(1, 101):
        progress.turn(episode(0), turn(seconds))

    records = progress.snapshot().records
    assert records is not None
    assert records.turns.p50_s == pytest.approx(50, rel=0.04)
    assert records.turns.p95_s == pytest.approx(95, rel=0.04)
    assert records.engine.total_s == pytest.approx(5050)
    assert (records.tools.total_s, records.cache_hit) == (0.0, 0.5)


def test_groups_count_when_they_are_complete_and_have_signal_when_rewards_differ() -> None:
    progress = progress_of(size=2)
    for instance, rewards in {"a": (0, 1), "b": (1, 1), "c": (0, None), "d": (1,)}.items():
        for sample, reward in enumerate(rewards):
            failure = FAILURE if reward is None else None
            progress.done(ended(sample, reward, instance=instance, failure=failure))

    assert groups_of(progress) == Groups(None, complete=3, with_signal=1)


def test_a_group_stays_open_for_what_replaces_a_failed_sample() -> None:
    progress = progress_of(size=2)
    progress.planned(2, 0)
    progress.done(ended(0, 0, instance="a"))
    progress.replaced(EpisodeId("demo", "a", 1), EpisodeId("demo", "a", 3))
    progress.done(ended(1, None, instance="a", failure=FAILURE))
    assert groups_of(progress) == Groups(None, complete=0, with_signal=0)
    progress.done(ended(3, 1, instance="a"))
    assert groups_of(progress) == Groups(None, complete=1, with_signal=1)
    assert (progress.planned_episodes, progress.committed) == (3, 3)


def test_groups_of_unknown_size_are_not_guessed() -> None:
    progress = LiveProgress()
    progress.done(ended(0, 1.0))

    assert groups_of(progress) is None


def test_speed_is_that_of_this_run() -> None:
    clock = [0.0]
    progress = progress_of(clock=clock)
    progress.planned(100, 40)
    for sample in range(40):
        progress.earlier(ended(sample, 1.0))
    before = progress.snapshot()
    assert (before.episodes_per_min, before.eta_s, before.committed) == (None, None, 40)

    for sample in range(40, 50):
        clock[0] += 6.0
        progress.turn(episode(sample), turn(1.0))
        progress.done(ended(sample, 1.0))
    after = progress.snapshot()
    assert after.episodes_per_min == pytest.approx(10)
    assert after.eta_s == pytest.approx(300)
    assert after.records is not None
    assert after.records.turns_per_s == pytest.approx(1 / 6)
    assert after.records.tokens_per_s == pytest.approx(7 / 6)


def test_memory_does_not_grow_with_episodes_or_turns() -> None:
    progress = progress_of(size=4)
    long = "x" * 100_000

    def held() -> tuple[int, ...]:
        return (len(progress.running), len(progress._open), len(progress._outcomes))

    for number in range(2000):
        each = episode(number % 4, f"task-{number // 4}")
        progress.phase(each, Phase.AGENT)
        progress.turn(each, turn(number))
        failure = FAILURE if number % 3 else None
        reward = None if failure else number % 2
        done = ended(each.sample, reward, instance=each.instance, failure=failure)
        progress.done(done)
        assert held() <= (1, 1, 2)
    assert all(len(each.latest) < 1000 for each in progress._outcomes.values()), long[:1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -3.0, 7.0])
def test_a_reward_that_is_no_usual_number_breaks_nothing(value: float) -> None:
    progress = progress_of(size=1)
    progress.done(ended(0, value))

    records = progress.snapshot().records
    assert records is not None
    assert sum(records.reward_bins) == (0 if value != value else 1)  # noqa: PLR0124 - not a number
