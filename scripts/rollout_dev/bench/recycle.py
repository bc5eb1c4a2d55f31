"""Pods and wall time of groups of samples, with and without what saves pods.

The same job of release pairs runs on the dev cluster with a pod for each run of an agent or of
tests, with first test runs that follow the agent in its pod (ADR 21), and with warm pods too. It is
small: 50 tasks of 40 samples would take hours here. A pod never serves two samples.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rollout_dev.bench.api_writes import PODS_LIMIT
from rollout_dev.bench.cluster_job import SMALL, JobRun, JobSize, Place, new_place
from rollout_dev.report import Report, Row, program

PER_RUN: Final = "a pod for each run"
FOLLOWS: Final = "tests follow the agent"
WARM: Final = "and warm pods"
SECONDS_LIMIT: Final = 1.0
"""The most time that what saves pods may take, relative to a pod for each run."""
FULL: Final = JobSize(("python-dotenv", "semver", "sqlparse"), 10)
QUICK: Final = JobSize(("semver",), 12)
_CODE: Final = Path(__file__).with_name("pod_per_run.py")
_SANDBOXES: Final[Mapping[str, Mapping[str, object]]] = {
    PER_RUN: {"backend": {"use": f"{_CODE.stem}:open_pod_per_run", "with": SMALL["resources"]}},
    FOLLOWS: {"pod": SMALL},
    WARM: {"pod": {**SMALL, "warm": {"cap": 2, "perImage": 1}}},
}


@program(quick="one task", shows_logs=True)
def main(given: Namespace) -> Report:
    """Run the jobs."""
    with new_place() as place:
        return _measure(place, QUICK if given.quick else FULL)


def _measure(place: Place, size: JobSize) -> Report:
    # The first job would pay for what the cluster does only once.
    place.run("first", JobSize(size.pairs[:1], 1), _SANDBOXES[FOLLOWS])
    runs = {
        subject: place.run(
            f"job-{number}", size, sandbox, *([_CODE] if "backend" in sandbox else [])
        )
        for number, (subject, sandbox) in enumerate(_SANDBOXES.items())
    }
    ratios = {
        "pods_to_pod_per_run": round(runs[FOLLOWS].pods / runs[PER_RUN].pods, 3),
        "seconds_to_pod_per_run": round(runs[FOLLOWS].seconds / runs[PER_RUN].seconds, 3),
    }
    return Report(
        "recycle",
        tuple(_row(subject, run, size) for subject, run in runs.items()),
        ok=all(run.masked == 0 for run in runs.values())
        and runs[FOLLOWS].pods <= PODS_LIMIT * size.episodes
        and ratios["seconds_to_pod_per_run"] <= SECONDS_LIMIT,
        ratios=ratios,
        notes=(
            f"{len(size.pairs)} tasks of {size.samples} samples, half of them resolved, 6 at once",
            f"goal where tests follow the agent: at most {PODS_LIMIT:g} pods per episode",
            "goal: no more time than with a pod for each run, which a back end of one's own gives",
            "pods include those of gold and base, which each worker runs once for each task",
            "agent-sandbox-rl on 50 tasks of 40 samples: 81 claims, 416 s where samples share pods",
            "the same where each sample has its own: 1,987 claims, 944 s; neither has blind runs",
        ),
    )


def _row(subject: str, run: JobRun, size: JobSize) -> Row:
    figures = {
        "pods": run.pods,
        "pods_per_episode": round(run.pods / size.episodes, 3),
        "wall_s": run.seconds,
        "s_per_episode": round(run.seconds / size.episodes, 2),
        "platform_writes": run.platform,
        "masked": run.masked,
    }
    return Row(subject, figures)
