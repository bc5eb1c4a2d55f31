"""A run that is killed, or whose clock jumps, has the records of one that was left alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

import pytest

from e2e.command import ROOT
from rollout_dev.conformance.stepped_clock import INSTALL, LIBRARY

_SIZE = ("--episodes", "4", "--turns", "12", "--parallelism", "4", "--pause", "0.3")
_SMALL = ("--episodes", "2", "--turns", "10", "--parallelism", "2", "--pause", "0.3")
_needs_clock = pytest.mark.skipif(not LIBRARY.exists(), reason=f"no libfaketime: `{INSTALL}`")


def _crash_equal(*options: str) -> Mapping[str, float]:
    """Run it; return its figures."""
    done = subprocess.run(
        ["scripts/conformance", "crash_equal", *options, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"], report["notes"]
    row: Mapping[str, float] = report["rows"][0]
    assert row["committed"] == row["episodes"]
    return row


def test_killed_runs_are_equal_and_each_command_ran_once() -> None:
    """Issue 16: SIGKILL, the same command again, and the dataset is the same."""
    row = _crash_equal(*_SIZE, "--every", "0.7")
    assert row["kills"] >= 1
    assert row["resumed"] >= 1


@pytest.mark.slow
@_needs_clock
def test_a_clock_that_jumps_changes_nothing_but_dates() -> None:
    """Hours and days to and fro, in one process: no turn is sampled again, no duration is wrong."""
    row = _crash_equal(*_SMALL, "--every", "0", "--clock-jumps", "0.3")
    assert row["clock_jumps"] >= 1
    assert row["records_of_another_hour"] >= 1
    assert (row["kills"], row["turns_sampled_again"]) == (0, 0)


@pytest.mark.slow
@_needs_clock
def test_what_is_killed_goes_on_at_another_hour() -> None:
    """The next process begins before the one it takes over, or a day later."""
    row = _crash_equal(*_SMALL, "--every", "4", "--clock-jumps", "0.3", "--seed", "59")
    assert row["clock_jumps"] >= 1
    assert row["records_of_another_hour"] >= 1
    assert row["resumed"] >= 1
