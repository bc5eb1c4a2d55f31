"""Every preset resolves a task of the demonstration, in its own format of calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.command import Job, printed_json, swe_rollout
from e2e.records import check, committed, read
from swe_rollout.spec.agent import PRESETS


@pytest.mark.parametrize("use", sorted(PRESETS))
def test_a_preset_resolves_what_its_policy_resolves(use: str, job_file: Callable[..., Job]) -> None:
    job = job_file(scenarios=["gold", "garbage"], agent={"use": use})

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    assert state["stop_reasons"] == {"format_errors": 1, "submitted": 1}
    assert (state["resolved"], state["masked"]) == (1, 0)
    for path in committed(job.folder):
        check(read(path))
