"""`worker`: the command of a RolloutJob's worker pods. Users run `launch` instead."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import record_termination, was_terminated
from swe_rollout.cli.options import MetricsAt, option
from swe_rollout.cli.output import show_error, stderr_console
from swe_rollout.errors import (
    DatasetError,
    EpisodeError,
    PrerequisiteError,
    SpecError,
    SweRolloutError,
    UsageError,
)
from swe_rollout.spec.worker_exits import WorkerExitCode

if TYPE_CHECKING:
    from swe_rollout.worker.cluster_worker import WorkerExit, WorkerIdentity

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes shows the content of this file as the reason for a container's termination."""
_MESSAGE_BYTES = 4096
"""How much of the message Kubernetes keeps."""
_PROBLEMS = 5
END_S = 30.0
"""How long to wait after a signal; then only foreign code that never returns still runs."""

Namespace = Annotated[str, option(help="Namespace of the job.")]
JobName = Annotated[str, option(help="Name of the RolloutJob.")]
Index = Annotated[
    int, option(min=0, max=999, envvar="JOB_COMPLETION_INDEX", help="Index of this worker, from 0.")
]
Count = Annotated[
    int | None, option(min=1, max=1000, help="Number of workers; overrides the job's.")
]
PodName = Annotated[
    str, option(envvar=["POD_NAME", "HOSTNAME"], help="The pod to annotate with the progress.")
]
Lives = Annotated[
    Path | None, option(metavar="FILE", help="Count there how often this worker was killed.")
]


def worker(
    namespace: Namespace,
    job: JobName,
    index: Index,
    count: Count = None,
    pod_name: PodName = "",
    *,
    metrics: MetricsAt = "",
    lives: Lives = None,
) -> None:
    """Run one worker's share of a RolloutJob, as the pods of its worker Job do.

    Exit 0 when the whole shard is committed, 78 when the job can't be carried out, 143 when stopped
    earlier, 75 when something else failed, such as the cluster or the store (the same command may
    continue later), 71 when it was killed too often without progress.

    swe-rollout worker --namespace default --job nightly --index 0
    """
    from swe_rollout.cli.logging_setup import configure_logs
    from swe_rollout.worker.cluster_worker import WorkerExit, WorkerIdentity

    # A worker's only output is its log.
    configure_logs(stderr_console, verbosity=1)
    identity = WorkerIdentity(
        namespace=namespace, job=job, index=index, count=count, pod=pod_name, lives=lives
    )
    try:
        outcome = asyncio.run(_work(identity, metrics))
    except SweRolloutError as error:
        _write_termination_message(error)
        show_error(error)
        raise typer.Exit(_exit_code(error)) from None
    if outcome is WorkerExit.DRAINED:
        raise typer.Exit(WorkerExitCode.DRAINED)


def _exit_code(error: SweRolloutError) -> WorkerExitCode:
    from swe_rollout.worker.cluster_worker import KilledTooOftenError
    from swe_rollout.worker.failure_budget import BudgetSpentError
    from swe_rollout.worker.job import DeadlineExceededError

    match error:
        case KilledTooOftenError():
            return WorkerExitCode.KILLED_TOO_OFTEN
        case UsageError() | PrerequisiteError() | BudgetSpentError() | DeadlineExceededError():
            return WorkerExitCode.JOB_FAILED
        case EpisodeError(retryable=False):
            return WorkerExitCode.JOB_FAILED
        case _:
            return WorkerExitCode.TRY_AGAIN


async def _work(identity: WorkerIdentity, metrics: str) -> WorkerExit:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = threading.Timer(END_S, os._exit, (WorkerExitCode.DRAINED,))
    end.daemon = True

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        record_termination()
        if not stop.is_set():
            loop.call_soon_threadsafe(stop.set)
            with suppress(RuntimeError):  # a second signal
                end.start()

    # Don't use the loop's own handlers: code of a dataset or an extension may block the loop.
    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    if was_terminated():
        on_signal(signal.SIGTERM, None)
    try:
        # This is slow, and a signal may arrive meanwhile.
        from swe_rollout.telemetry.setup import observing_if_possible
        from swe_rollout.worker import cluster_worker

        async with observing_if_possible(metrics) as observer:
            return await cluster_worker.work(identity, stop=stop, observer=observer)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_termination_message(error: SweRolloutError) -> None:
    """Write the reason for the termination for Kubernetes, in one line."""
    if TERMINATION_LOG.exists():
        problems = error.problems if isinstance(error, (SpecError, DatasetError)) else ()
        what = f"{error.what}: {error.why}" if error.why else error.what
        sentences = [what, *map(str, problems[:_PROBLEMS]), error.fix]
        line = " ".join(". ".join(filter(None, sentences)).split())
        TERMINATION_LOG.write_bytes(line.encode()[:_MESSAGE_BYTES])
