"""`fork`: begin new episodes from a recorded turn of an episode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.files import require_new, writing
from swe_rollout.cli.job_address import JobLocation, find_target
from swe_rollout.cli.job_file import in_sandbox, overrides_of
from swe_rollout.cli.options import (
    Context,
    DisplayKind,
    Form,
    Join,
    Name,
    Namespace,
    OutputFormat,
    Overwrite,
    SandboxChoice,
    Sets,
    Shown,
    complete_address,
    option,
)
from swe_rollout.cli.output import say, write_lines
from swe_rollout.errors import UsageError
from swe_rollout.store.layout import JobRef
from swe_rollout.types.episode import EpisodeId

if TYPE_CHECKING:
    from swe_rollout.spec.job import RolloutJob
    from swe_rollout.spec.load import Setting

EpisodeAddress = Annotated[
    str,
    typer.Argument(
        metavar="JOB/INSTANCE/SAMPLE",
        help="A committed episode, whose job has spec.store.keepJournals.",
        autocompletion=complete_address,
    ),
]
Turn = Annotated[
    int, option("--turn", "-t", min=1, help="The first turn to sample anew, counted from 0.")
]
Samples = Annotated[int, option("--samples", min=1, help="Episodes that begin there.")]
TrainInherited = Annotated[
    bool, option("--train-inherited", help="Leave the inherited tokens in the loss mask.")
]
JobFile = Annotated[
    Path | None,
    option("--output-file", "-O", help="Write the job here, and do not run it."),
]


def fork(
    address: EpisodeAddress,
    turn: Turn,
    namespace: Namespace = None,
    context: Context = None,
    *,
    sandbox: SandboxChoice = None,
    name: Name = None,
    sets: Sets = None,
    samples: Samples = 1,
    train_inherited: TrainInherited = False,
    output_file: JobFile = None,
    overwrite: Overwrite = False,
    join: Join = False,
    display: Shown = DisplayKind.AUTO,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Begin new episodes from a recorded turn: its files, its tokens, its program.

    The episodes form a new job in the same store, which runs in this process; repeat the command to
    continue or extend it. -O writes its job file, for `launch` and `kubectl apply`.

    swe-rollout fork runs/demo/sqlparse-0.5.2/0 --turn 6 --samples 8

    swe-rollout fork demo/sqlparse-0.5.2/0 --turn 6 --samples 8 -O fork.yaml
    """
    from swe_rollout.cli.run import finish, roll_out

    overrides = [
        f"spec.samples={samples}",
        f"spec.fork.turn={turn}",
        f"spec.fork.trainInherited={'true' if train_inherited else 'false'}",
        *overrides_of(sets, store=None, name=name, skip_bad_rows=False),
    ]
    if output_file is not None:
        output_file = require_new(output_file, overwrite=overwrite)
    job = asyncio.run(_job(address, JobLocation(namespace, context), turn, overrides))
    if sandbox is not None:
        job = in_sandbox(job, sandbox)
    if output_file is not None:
        _write(_to_apply(job), output_file)
        return
    say(f"{job.metadata.name}: {job.spec.samples} episodes from turn {turn} of {address}")
    work = roll_out(job, (), base_dir=Path.cwd(), display=display, join=join)
    finish(work, JobRef(job.spec.store.uri, job.metadata.name), output)


async def _job(
    address: str, location: JobLocation, turn: int, overrides: Sequence[str | Setting]
) -> RolloutJob:
    """Return the fork's job: the episode's, with another starting point and name."""
    from swe_rollout.spec.load import parse_job
    from swe_rollout.worker.stored_tasks import stored_job

    target = await find_target(address, location)
    episode = target.episode
    if episode is None:
        raise UsageError(
            f"{address} is not an episode",
            why="it names a job, or no job has it",
            fix="write JOB/INSTANCE/SAMPLE; `swe-rollout view JOB` lists them",
        )
    origin = await stored_job(target.open_store(), target.ref.job)
    document = origin.to_yaml_dict()
    document["metadata"] = {"name": fork_name(episode, turn)}
    spec = origin.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    spec |= {"suspend": False}
    spec["fork"] = {
        "uri": str(target.ref),
        "instance": episode.instance,
        "sample": episode.sample,
        "turn": turn,
    }
    # JSON is YAML.
    text = json.dumps({**document, "spec": spec})
    return parse_job(text, source=f"the job of {address}", overrides=overrides)


def fork_name(episode: EpisodeId, turn: int) -> str:
    """Return the (stable) name of the job that forks an episode at a turn."""
    return f"{episode.job[:40].rstrip('-')}-fork-{episode.digest[:6]}-{turn}"


def _to_apply(job: RolloutJob) -> RolloutJob:
    """Move the pods' namespace to the job's metadata, since sandboxes share their job's."""
    pod = job.spec.sandbox.pod
    if pod is None or pod.namespace is None:
        return job
    metadata = job.metadata.model_copy(update={"namespace": pod.namespace})
    pods = pod.model_copy(update={"namespace": None})
    changed = job.with_spec(sandbox=job.spec.sandbox.model_copy(update={"pod": pods}))
    return changed.model_copy(update={"metadata": metadata})


def _write(job: RolloutJob, path: Path) -> None:
    import yaml

    text = yaml.safe_dump(job.to_yaml_dict(), sort_keys=False, allow_unicode=True)
    with writing(path):
        path.write_text(text, encoding="utf-8")
    write_lines([str(path)])
