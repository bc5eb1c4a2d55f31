"""How many lives a worker has in its pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.worker.cluster_worker import MOST, KilledTooOftenError, Lives


def test_a_worker_that_gets_no_further_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "lives"
    for _ in range(MOST):
        Lives(file).begin()

    with pytest.raises(KilledTooOftenError, match=f"killed {MOST} times"):
        Lives(file).begin()


def test_progress_gives_back_all_lives(tmp_path: Path) -> None:
    file = tmp_path / "lives"
    for _ in range(MOST - 1):
        Lives(file).begin()
    last = Lives(file)
    last.begin()

    last.progressed()
    last.progressed()

    for _ in range(MOST):
        Lives(file).begin()
    with pytest.raises(KilledTooOftenError):
        Lives(file).begin()


@pytest.mark.parametrize("torn", ["", "x", "\0"])
def test_a_count_that_was_killed_while_it_was_written_is_begun_anew(
    tmp_path: Path, torn: str
) -> None:
    file = tmp_path / "lives"
    file.write_text(torn)

    Lives(file).begin()

    assert file.read_text() == "1"


def test_without_a_file_or_a_disk_nothing_is_counted_and_the_worker_works(tmp_path: Path) -> None:
    for file in (None, tmp_path / "missing" / "lives"):
        for _ in range(MOST + 2):
            lives = Lives(file)
            lives.begin()
            lives.progressed()
