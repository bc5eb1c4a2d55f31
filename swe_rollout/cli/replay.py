"""`replay`: carry out the recorded calls of episodes again, and compare what they return."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_address import JobLocation
from swe_rollout.cli.options import (
    Context,
    Form,
    Namespace,
    OtherDatasetName,
    OutputFormat,
    SandboxChoice,
    SandboxCount,
    StoredAddress,
    WithFiles,
)
from swe_rollout.cli.output import say, write_data, write_table
from swe_rollout.cli.stored_work import WorkOptions, open_work
from swe_rollout.errors import TaskError

if TYPE_CHECKING:
    from swe_rollout.types.instance import Instance
    from swe_rollout.types.trajectory import Trajectory
    from swe_rollout.worker.replay import Replay


def replay(
    address: StoredAddress,
    namespace: Namespace = None,
    context: Context = None,
    sandbox: SandboxChoice = None,
    *,
    dataset: OtherDatasetName = None,
    with_files: WithFiles = None,
    parallelism: SandboxCount = 2,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Carry out the recorded calls again in fresh sandboxes, and compare every observation.

    Times, durations, process ids, temporary paths and hashes may differ. Shows the first difference
    of each episode. Needs no model, and changes no record. Exit 0 when everything matches the
    record, 1 when something differs or can't be replayed.

    swe-rollout replay runs/demo/sqlparse-0.5.2/0

    swe-rollout replay runs/demo -o json
    """
    options = WorkOptions(sandbox, dataset, with_files or ())
    work = _replay(address, JobLocation(namespace, context), options, parallelism)
    replays = run_async(work, on_note=say)
    if output.is_data:
        write_data({"episodes": [_record(each) for each in replays]}, output)
    else:
        write_table(
            ["EPISODE", "CALLS#", "RESULT"],
            [[str(each.episode), str(each.calls), _result(each)] for each in replays],
            output,
        )
    same = sum(each.same for each in replays)
    say(f"{same} of {len(replays)} episodes are as recorded")
    if same < len(replays):
        raise typer.Exit(1)


async def _replay(
    address: str, location: JobLocation, options: WorkOptions, parallelism: int
) -> list[Replay]:
    from swe_rollout.agent.tools import toolbox
    from swe_rollout.worker.replay import Replay, Replayer

    found: list[Replay] = []
    async with open_work(address, location, options) as work:
        spec = work.tasks.job.spec
        if str(spec.agent) != "loop":
            say(f"the agent {spec.agent} may have done more than its turns tell")
        replayer = Replayer(work.sandboxes, toolbox(spec.agent.tools), spec.limits)

        async def one(trajectory: Trajectory, task: Instance | TaskError) -> None:
            if isinstance(task, TaskError):
                result = Replay(trajectory.episode, 0, failure=str(task))
            else:
                result = await replayer.replay(trajectory, task)
            found.append(result)
            say(f"{result.episode}: {_result(result)}")
            if result.difference is not None:
                say(result.difference.diff)

        await work.on_each(one, parallelism=parallelism)
    return sorted(found, key=lambda each: (each.episode.instance, each.episode.sample))


def _result(replay: Replay) -> str:
    if replay.failure:
        return f"not replayed: {replay.failure}"
    return "same" if replay.difference is None else str(replay.difference)


def _record(replay: Replay) -> dict[str, object]:
    return {
        "episode": str(replay.episode),
        "same": replay.same,
        "calls": replay.calls,
        "difference": replay.difference and asdict(replay.difference),
        "failure": replay.failure or None,
    }
