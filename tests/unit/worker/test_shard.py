"""Which tasks and how much parallelism are one worker's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.worker.backlog import WHOLE, Shard

COUNTS = st.integers(1, 50)


@given(tasks=st.lists(st.integers(), max_size=200), count=COUNTS)
def test_every_task_is_exactly_one_workers(tasks: list[int], count: int) -> None:
    shares = [Shard(index, count).tasks(list(enumerate(tasks))) for index in range(count)]
    every_task = sorted(task for share in shares for task in share)
    assert every_task == list(enumerate(tasks))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(parallelism=st.integers(1, 1000), count=COUNTS)
def test_the_shares_of_parallelism_add_up_and_none_is_empty(parallelism: int, count: int) -> None:
    shares = [Shard(index, count).parallelism(parallelism) for index in range(count)]
    assert sum(shares) == max(parallelism, count)
    assert max(shares) - min(shares) <= 1


def test_task_k_is_worker_k_modulo_their_number() -> None:
    assert Shard(1, 3).tasks("abcdefgh") == ("b", "e", "h")


def test_the_only_worker_has_everything() -> None:
    assert WHOLE.tasks("abc") == ("a", "b", "c")
    assert WHOLE.parallelism(16) == 16


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0)])
def test_a_worker_beyond_their_number_is_refused(index: int, count: int) -> None:
    with pytest.raises(ValueError, match="no worker"):
        Shard(index, count)
