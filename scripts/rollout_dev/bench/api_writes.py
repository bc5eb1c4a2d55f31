"""API-server writes per episode of a RolloutJob, counted from the dev cluster's audit log.

It runs one job of release pairs in its own namespace, with the installed operator, and counts what
the operator and the workers create, change and delete there: sandbox and grading pods, progress
annotations, status, events, and the job's own objects. The platform's writes in response (kubelet,
scheduler, garbage collector) have their own row. Opening an exec stream stores nothing and is not
counted.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence

from rollout_dev.bench.cluster_job import SMALL, ApiWrite, JobRun, JobSize, new_place
from rollout_dev.report import Report, Row, program

NAME = "api_writes"
WRITES_LIMIT = 2.5
"""The most writes per episode that are allowed."""
PODS_LIMIT = 2.2
FLOOR = 1.5
"""The pods of an episode: one in which the agent works and tests run, and a second one for the
blind run of each patch that resolves its task, which is every other one here."""
FULL = JobSize(("python-dotenv", "semver", "sqlparse", "tomlkit"), 12)
QUICK = JobSize(("semver",), 40)


@program(quick="a smaller job, under a minute", shows_logs=True)
def main(given: Namespace) -> Report:
    """Run the job and count its writes."""
    size = QUICK if given.quick else FULL
    with new_place() as place:
        return _report(place.run("api-writes", size, {"pod": SMALL}), size)


def _report(run: JobRun, size: JobSize) -> Report:
    ours = len(run.by_worker) + len(run.by_operator)
    per_episode = ours / size.episodes
    pods_per_episode = run.pods / size.episodes
    rows = [
        Row(
            "swe-rollout",
            {
                "pods_per_episode": round(pods_per_episode, 3),
                "writes_per_episode": round(per_episode, 3),
                "writes": ours,
                "episodes": size.episodes,
                "masked": run.masked,
            },
        ),
        *_by_resource("worker", run.by_worker, size),
        *_by_resource("operator", run.by_operator, size),
        Row(
            "platform",
            {"per_episode": round(run.platform / size.episodes, 3), "writes": run.platform},
        ),
    ]
    return Report(
        NAME,
        tuple(rows),
        ok=per_episode <= WRITES_LIMIT and pods_per_episode <= PODS_LIMIT and run.masked == 0,
        ratios={"ours_to_floor": round(per_episode / FLOOR, 3)},
        notes=(
            f"goals, at half resolved: at most {PODS_LIMIT:g} pods and {WRITES_LIMIT:g} writes",
            f"the floor: {FLOOR:g} pod creations",
            "pods include those of gold and base, which each worker runs once for each task",
            "the platform's row: writes of kubelet, scheduler and controllers in response",
        ),
    )


def _by_resource(who: str, found: Sequence[ApiWrite], size: JobSize) -> Iterator[Row]:
    counts = Counter((write.verb, write.resource) for write in found)
    for (verb, resource), count in counts.most_common():
        figures = {"per_episode": round(count / size.episodes, 3), "writes": count}
        yield Row(f"{who}: {verb} {resource}", figures)
