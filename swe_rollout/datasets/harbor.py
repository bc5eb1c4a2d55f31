"""The dataset source `harbor`: tasks in the folder form of Harbor and Terminal-Bench 2.

    task.toml                       times, image, environment of the tests
    instruction.md                  what the agent reads
    environment/Dockerfile          not built here: it says the workdir
    tests/test.sh, …                run in a clean sandbox, write /logs/verifier/reward.{json,txt}
    solution/solve.sh, …            the oracle, for `validate`

`harbor_task` reads one of them, `harbor_files` the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from swe_rollout.datasets.harbor_files import read_tasks
from swe_rollout.datasets.harbor_task import instance_of
from swe_rollout.datasets.source import AT_A_TIME
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.types.instance import Instance


async def load(
    uri: str, *, base_dir: Path, image: str = "", keep: Sequence[str] = ()
) -> tuple[Instance | Problem, ...]:
    """Return an instance for each task, or the problem in its place, sorted by name.

    `uri` is a task's folder, a folder of tasks, or a tar archive of either: a path, `file://` or
    `s3://` (archives only). `image` names the images of tasks that name none; `{name}` in it is the
    task's. Of the agent's changes those in the workdir, in the task's artifacts and in the absolute
    paths `keep` are graded. Raises DatasetError when there is no task at all.
    """
    refused = [path for path in keep if not path.startswith("/") or path.strip("/") == ""]
    if refused:
        problems = [Problem("dataset", "keep", f"{path!r} is no absolute path") for path in refused]
        raise DatasetError("`keep` takes absolute paths below /", problems)
    tasks = await read_tasks(uri, base_dir=base_dir)
    results: list[Instance | Problem] = []
    for number, task in enumerate(tasks):
        if number % AT_A_TIME == 0:
            await asyncio.sleep(0)
        if not isinstance(task, Problem):
            results.append(instance_of(task, image=image, keep=keep))
        else:
            results.append(task)
    return tuple(results)
