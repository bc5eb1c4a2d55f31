"""A job whose sandboxes all end is not a success."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Job, printed_json, swe_rollout

pytestmark = pytest.mark.threat(point=8)

ENDING = '''
from swe_rollout.errors import SandboxError


class Ending:
    """Sandboxes that end as soon as they start, as if the policy had killed them."""

    async def start(self, request):
        raise SandboxError("the sandbox ended", why="killed", retryable=False)

    def prewarm(self, requests):
        pass

    async def delete_orphans(self, episodes):
        pass

    async def aclose(self):
        pass
'''
BROKEN: Any = {"sandbox": {"backend": {"use": "ending:Ending"}}, "retry": {"attempts": 1}}


def run(job: Job, tmp_path: Path, *, check: bool) -> subprocess.CompletedProcess[str]:
    code = tmp_path / "ending.py"
    code.write_text(ENDING)
    return swe_rollout("run", str(job.path), "--with", str(code), check=check)


@pytest.mark.parametrize("samples", [2, 12])
def test_a_job_of_masked_episodes_ends_with_1_and_says_why(
    job_file: Callable[..., Job], tmp_path: Path, samples: int
) -> None:
    job = job_file(scenarios=["gold"], samples=samples, **BROKEN)
    done = run(job, tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    assert "the failure budget is spent" in done.stderr
    assert "maxMaskedFraction allows 0.2" in done.stderr
    status = swe_rollout("status", job.uri, "-o", "json")
    assert printed_json(status)["masked_share"] == 1.0
    assert "(100% masked)" in swe_rollout("status", job.uri).stderr
    # What one process masked, the next one counts too.
    again = run(job, tmp_path, check=False)
    assert again.returncode == 1, again.stderr
    before, now = (
        int(found[1])
        for each in (done, again)
        if (found := re.search(r"(\d+) of \d+ episodes were masked", each.stderr))
    )
    assert now == before == 2 if samples == 2 else now > before


def test_a_budget_of_1_accepts_any_number_of_them(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    job = job_file(scenarios=["gold"], failureBudget={"maxMaskedFraction": 1}, **BROKEN)
    run(job, tmp_path, check=True)
