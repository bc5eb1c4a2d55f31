"""The job beside the trainer's thread; a sample that failed is replaced alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swe_rollout import RolloutJob
from swe_rollout.errors import UsageError
from swe_rollout.integrations.trainer_session import BLOCK, REFILLS
from swe_rollout.integrations.trl.session_thread import SessionThread, all_of
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.sample_bounds import FailureRateError
from unit.integrations.rollouts import SUBMIT, Policy, hashed_model, sandboxes, write_job


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., SessionThread]]:
    threads: list[SessionThread] = []

    def thread(**job: object) -> SessionThread:
        policy = Policy({0: [SUBMIT]}, {"7": hashed_model(1)})
        path = write_job(tmp_path, **job)
        threads.append(SessionThread(RolloutJob.from_yaml(path), engine=policy))
        return threads[-1]

    yield thread
    for each in threads:
        each.close()


def test_a_sample_that_failed_is_replaced_by_another(opened: Callable[..., SessionThread]) -> None:
    thread = opened()
    sandboxes().refused = REFILLS

    played = thread.run(thread.trainer.run_sample("one", sampling=Sampling(temperature=0.5)))

    assert played.failure is None
    assert played.episode.sample == REFILLS
    assert played.segments[1].sampling is not None
    assert played.segments[1].sampling.temperature == 0.5


def test_after_the_last_refill_the_failure_is_returned(
    opened: Callable[..., SessionThread],
) -> None:
    thread = opened(failureBudget={"maxMaskedFraction": 1})
    sandboxes().refused = REFILLS + 1

    played = thread.run(thread.trainer.run_sample("one"))

    assert played.failure is not None
    assert thread.run(thread.trainer.run_sample("one")).failure is None


def test_too_many_failures_raise(opened: Callable[..., SessionThread]) -> None:
    thread = opened()
    sandboxes().refused = 10**6

    works = [thread.trainer.run_sample("one") for _ in range(20)]
    with pytest.raises(FailureRateError, match="sandbox"):
        thread.run(all_of(works))


def test_the_processes_of_a_training_number_their_samples_apart(
    opened: Callable[..., SessionThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As accelerate tells them apart; the numbers of each are the same in every run."""
    samples = []
    for rank in (None, "0", "1", "7"):
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
        thread = opened()
        samples.append([thread.run(thread.trainer.run_sample("one")).episode.sample for _ in "ab"])

    assert samples == [[0, 1], [0, 1], [BLOCK, BLOCK + 1], [7 * BLOCK, 7 * BLOCK + 1]]


def test_errors_of_the_job_are_raised_where_it_is_opened(tmp_path: Path) -> None:
    job = RolloutJob.from_yaml(write_job(tmp_path, dataset={"source": {"use": "no:such"}}))
    with pytest.raises(Exception, match="no"):
        SessionThread(job)


def test_an_error_of_the_work_is_raised_and_the_session_goes_on(
    opened: Callable[..., SessionThread],
) -> None:
    thread = opened()
    with pytest.raises(UsageError, match="no task three"):
        thread.run(thread.session.run_episode("three"))
    assert thread.run(thread.session.run_episode("two")).failure is None


def test_close_ends_what_still_runs(opened: Callable[..., SessionThread]) -> None:
    thread = opened()
    sandboxes().tools.clear()
    running = thread.submit(thread.session.run_episode("one"))

    thread.close()

    assert running.cancelled() or running.result(timeout=10).failure is None
    assert sandboxes().open == 0
    thread.close()
